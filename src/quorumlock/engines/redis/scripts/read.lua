-- KEYS lock, fence, marker, queue, readers
-- ARGV token, ttl_ms, candidate_us, card, clamp_us, fence_ttl_ms, …, marker
-- answers {1, fence} granted · {0, pttl, fence} held · {-1} stranger · {-2, ms} quarantine · {-4} another kind
--
-- The readers are a sorted set: each with its own end, in ms of this node's time. While there are any, the lock is
-- READERS, and lives as long as the last of them: so whoever wants it alone finds it held.

if seen[1] and seen[1] ~= READERS then return {0, redis.call('PTTL', lock), stored} end
if not seen[1] and redis.call('EXISTS', lock) == 1 then return {OTHER_KIND} end

-- Where the lock was deleted by force, nobody of those who shared it has it any more.
redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', seen[1] and now_ms or '+inf')
redis.call('ZADD', KEYS[5], now_ms + ARGV[2], ARGV[1])
local last_ms = redis.call('ZRANGE', KEYS[5], -1, -1, 'WITHSCORES')[2] - now_ms
redis.call('SET', lock, READERS, 'PX', last_ms)
redis.call('PEXPIRE', KEYS[5], last_ms)
-- What is stored may be from an old disk. The fences that were given before this node forgot are no higher than the
-- end of its quarantine less half a max_ttl, and those that are given from now on no lower.
local ready_at, max_ttl_ms = string.match(seen[3], '^(%d+) %d+ %S+ %S+ %S+ (%d+)')
local least = ready_at - max_ttl_ms * 500
if stored == 0 then -- nobody ever had it alone
  local clamp = tonumber(ARGV[5])
  least = math.max(least, math.min(math.max(tonumber(ARGV[3]), now - clamp), now + clamp))
end
if stored < least then
  stored = least
  redis.call('SET', fence_key, string.format('%.0f', stored), 'PX', ARGV[6])
else
  redis.call('PEXPIRE', fence_key, ARGV[6])
end
--+ local last_key, earlier, since, by = last_of(lock)
--+ if by then redis.pcall('DEL', last_key) end
--+ if by then note('expired', lock, earlier, by, since) end
--+ note('acquired', lock, string.format('%.0f', stored), short(ARGV[1]), ARGV[4])
return {1, stored}
