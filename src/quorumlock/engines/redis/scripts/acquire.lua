-- KEYS lock, fence, marker
-- ARGV token, ttl_ms, candidate_us, clamp_us, fence_ttl_ms, marker
-- answers {1, fence} granted · {0, pttl, fence} held · {-1} stranger · {-2, ms} quarantine · {-4} another kind

local seen = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
local now = now_us()
local refusal = not_standing(seen[3], now)
if refusal then return refusal end

local fence = tonumber(seen[2]) or 0
if seen[1] == ARGV[1] then return {1, fence} end
if seen[1] then return {0, redis.call('PTTL', KEYS[1]), fence} end
-- MGET shows a key of another type as missing; NX does not overwrite it.
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return {OTHER_KIND} end

local clamp = tonumber(ARGV[4])
local candidate = math.min(math.max(tonumber(ARGV[3]), now - clamp), now + clamp)
return {1, raise_fence(fence + 1, candidate, ARGV[5])}
