-- KEYS lock, fence, marker
-- ARGV token, ttl_ms, candidate_us, clamp_us, fence_ttl_ms, marker
-- answers {1, fence} granted · {0, pttl, fence} held · {-1} stranger · {-2, ms} quarantine · {-4} another kind

if refusal then return refusal end
if seen[1] == ARGV[1] then return {1, tonumber(seen[2]) or 0} end
if seen[1] then return {0, redis.call('PTTL', KEYS[1]), tonumber(seen[2]) or 0} end
-- MGET shows a key of another type as missing; NX does not overwrite it.
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return {OTHER_KIND} end

local clamp = tonumber(ARGV[4])
local candidate = math.min(math.max(tonumber(ARGV[3]), now - clamp), now + clamp)
local fence = math.max((tonumber(seen[2]) or 0) + 1, candidate)
redis.call('SET', KEYS[2], string.format('%.0f', fence), 'PX', ARGV[5])
return {1, fence}
