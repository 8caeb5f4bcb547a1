-- KEYS lock, queue
-- ARGV token ('' : only leaves the queue), wake (1 or 0), member ('' without a ticket), locker, stay_ms, channel
-- answers 1 deleted · 2 deleted, and somebody elsewhere is next · 0 another's · -3 absent
--
-- Members of the queue are `locker:id` (see turn.lua). Of those, the first that hears it is told.

local token, wake, member, locker, stay_ms, channel = unpack(ARGV)
local holder = redis.pcall('GET', KEYS[1]) -- an error, and so another's, where the key is of another type
local mine = holder == token
if mine then
  if stay_ms == '0' then
    redis.call('DEL', KEYS[1])
  else
    redis.call('SET', KEYS[1], 'ql:closed', 'PX', stay_ms)
  end
end
if member ~= '' and wake == '1' then redis.call('ZREM', KEYS[2], member, 'u:' .. member) end
local free = mine and stay_ms == '0' or not holder and token == ''
local others = false
while free and wake == '1' do
  local head = redis.call('ZRANGEBYSCORE', KEYS[2], 0, '+inf', 'LIMIT', 0, 1)[1]
  if not head then break end
  local where, id = string.match(head, '^([^:]*):(.*)$')
  if where ~= '' and where == locker then break end -- who asks knows
  others = true
  if where == '' or redis.pcall('PUBLISH', channel .. where, id) ~= 0 then break end
  others = false
  redis.call('ZREM', KEYS[2], head, 'u:' .. head) -- nobody is there any more
end
if mine then return others and 2 or 1 end
return holder and 0 or -3
