-- KEYS lock, queue, readers
-- ARGV token, wake (1 or 0), member ('' without a ticket), locker, stay_ms, channel
-- answers 1 deleted · 2 deleted, and somebody elsewhere is next · 0 another's · -3 absent

local token, wake, member, locker, _, channel = unpack(ARGV)
if member ~= '' and wake == '1' then redis.call('ZREM', KEYS[2], member, 'u:' .. member) end
local holder = redis.pcall('GET', KEYS[1])
if redis.call('ZREM', KEYS[3], token) == 0 then return holder and 0 or -3 end
--+ note('released', KEYS[1], '0', short(token), ' ' .. wake)
if holder ~= 'ql:readers' then return 1 end
local last = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')[2]
if last then
  local now = redis.call('TIME')
  local left_ms = last - math.floor((now[1] * 1000000 + now[2]) / 1000)
  if left_ms > 0 then
    redis.call('PEXPIRE', KEYS[1], left_ms)
    return 1
  end
end
redis.call('DEL', KEYS[1], KEYS[3])
return wake == '1' and tell(KEYS[2], channel, locker) and 2 or 1
