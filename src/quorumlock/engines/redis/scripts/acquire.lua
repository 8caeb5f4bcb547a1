-- KEYS lock, fence, marker
-- ARGV token, ttl_ms, candidate_us, card, clamp_us, fence_ttl_ms, …, marker
-- answers {1, fence} granted · {0, pttl, fence} held · {-1} stranger · {-2, ms} quarantine · {-4} another kind
--
-- Behind the fence stands, for people, who was given it: `fence since_us start-of-token card`.

if refusal then return refusal end
if seen[1] == ARGV[1] then return {1, stored, slot} end
if seen[1] then return {0, redis.call('PTTL', lock), stored} end
-- MGET shows a key of another type as missing; NX does not overwrite it.
if not redis.call('SET', lock, ARGV[1], 'NX', 'PX', ARGV[2]) then return {OTHER_KIND} end

local clamp = tonumber(ARGV[5])
local candidate = math.min(math.max(tonumber(ARGV[3]), now - clamp), now + clamp)
local fence = math.max(stored + 1, candidate)
local said = string.format('%.0f %.0f %s %s', fence, now, string.sub(ARGV[1], 1, 8), ARGV[4])
redis.call('SET', fence_key, said, 'PX', ARGV[6])
--+ note_grant(lock, fence, now, ARGV[1], ARGV[4])
return {1, fence, slot}
