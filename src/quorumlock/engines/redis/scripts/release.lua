-- KEYS lock, queue
-- ARGV token ('' : only leaves the queue), wake (1 or 0), member ('' without a ticket), locker, stay_ms, channel
-- answers 1 deleted · 2 deleted, and somebody elsewhere is next · 0 another's · -3 absent
--
-- Tells the first of the queue that hears it; of those who want to share (`~r`), all up to one who does not. Also if
-- somebody leaves the queue of a lock that is shared: those behind it may come in.
-- (Members of the queue: see turn.lua. Not with tell.lua: a function is made anew on every call, and costs.)

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
local free = mine or not holder and token == '' -- also if it stays closed: they know of a later end
local sharing = token == '' and holder == 'ql:readers'
local others, at = false, 0
while (free or sharing) and wake == '1' do
  local head = redis.call('ZRANGEBYSCORE', KEYS[2], 0, '+inf', 'LIMIT', at, 1)[1]
  if not head then break end
  local reader = string.sub(head, -2) == '~r'
  if (at > 0 or sharing) and not reader then break end
  local where, id = string.match(head, '^([^:]*):(.*)$')
  if where == '' or where == locker or redis.pcall('PUBLISH', channel .. where, id) ~= 0 then
    others = others or where ~= locker or where == ''
    if not reader then break end
    at = at + 1
  else
    redis.call('ZREM', KEYS[2], head, 'u:' .. head) -- nobody is there any more
  end
end
--+ note_end(KEYS[1], token, mine, wake)
if mine then return others and 2 or 1 end
return holder and 0 or -3
