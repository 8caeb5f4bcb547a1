-- KEYS lock, fence, marker
-- ARGV token, granted, fence, fence_ttl_ms, marker
-- answers {1, fence} raised · {-5} granted again since · {-1} stranger · {-2, ms} quarantine

local seen = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
local refusal = not_standing(seen[3], now_us())
if refusal then return refusal end
if seen[1] ~= ARGV[1] or tonumber(seen[2]) ~= tonumber(ARGV[2]) then return {CHANGED} end
return {1, raise_fence(seen[2], tonumber(ARGV[3]), ARGV[4])}
