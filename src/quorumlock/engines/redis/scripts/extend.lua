-- KEYS lock, fence, marker
-- ARGV token, ttl_ms, fence, fence_ttl_ms, marker
-- answers {1, fence} renewed · {0, pttl, fence} another's · {-3} absent, or in quarantine · {-1} stranger · {-4} another kind

local seen = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
local refusal = not_standing(seen[3], now_us())
if refusal then
  -- What a quarantined node restored from disk is not to be trusted: it counts as having nothing.
  if refusal[1] == QUARANTINE then return {ABSENT} end
  return refusal
end
if seen[1] == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {1, raise_fence(seen[2], tonumber(ARGV[3]), ARGV[4])}
end
if seen[1] then return {0, redis.call('PTTL', KEYS[1]), tonumber(seen[2]) or 0} end
if redis.call('EXISTS', KEYS[1]) == 1 then return {OTHER_KIND} end
return {ABSENT}
