-- KEYS lock, fence, marker
-- ARGV token, ttl_ms, fence, fence_ttl_ms, marker
-- answers {1, fence} stored · {0, pttl, fence} another's · {-1} stranger · {-4} another kind

if refusal and refusal[1] ~= QUARANTINE then return refusal end
-- A node in quarantine votes for nobody, so what it names may be replaced; elsewhere only a free lock is ours.
if seen[1] and seen[1] ~= ARGV[1] and not refusal then
  return {0, redis.call('PTTL', KEYS[1]), tonumber(seen[2]) or 0}
end
if not seen[1] and redis.call('EXISTS', KEYS[1]) == 1 then return {OTHER_KIND} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
local fence = math.max(tonumber(seen[2]) or 0, tonumber(ARGV[3]))
redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', ARGV[4])
return {1, fence}
