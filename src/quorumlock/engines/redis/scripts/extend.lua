-- KEYS lock, fence, marker
-- ARGV token, ttl_ms, fence, fence_ttl_ms, marker
-- answers {1, fence} renewed · {0, pttl, fence} another's · {-3} absent, or in quarantine · {-1} stranger · {-4} another kind

if refusal then
  -- What a quarantined node restored from disk is not to be trusted: it counts as having nothing.
  if refusal[1] == QUARANTINE then return {ABSENT} end
  return refusal
end
if seen[1] == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  local fence = math.max(tonumber(seen[2]) or 0, tonumber(ARGV[3]))
  redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', ARGV[4])
  return {1, fence}
end
if seen[1] then return {0, redis.call('PTTL', KEYS[1]), tonumber(seen[2]) or 0} end
if redis.call('EXISTS', KEYS[1]) == 1 then return {OTHER_KIND} end
return {ABSENT}
