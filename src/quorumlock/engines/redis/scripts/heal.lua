-- KEYS lock, fence, marker
-- ARGV token, ttl_ms, fence, fence_ttl_ms, marker
-- answers {1, fence} stored · {0, pttl, fence} another's · {-1} stranger · {-4} another kind

local seen = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
local refusal = not_standing(seen[3], now_us())
if refusal and refusal[1] ~= QUARANTINE then return refusal end
-- A node in quarantine votes for nobody, so what it names may be replaced; elsewhere only a free lock is ours.
if seen[1] and seen[1] ~= ARGV[1] and not refusal then
  return {0, redis.call('PTTL', KEYS[1]), tonumber(seen[2]) or 0}
end
if not seen[1] and redis.call('EXISTS', KEYS[1]) == 1 then return {OTHER_KIND} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {1, raise_fence(seen[2], tonumber(ARGV[3]), ARGV[4])}
