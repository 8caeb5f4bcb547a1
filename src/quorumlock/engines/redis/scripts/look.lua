-- KEYS lock, fence, marker
-- ARGV marker
-- answers {1, fence} free · {0, pttl, fence} held · {-1} stranger · {-2, ms} quarantine · {-4} another kind

local seen = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
local refusal = not_standing(seen[3], now_us())
if refusal then return refusal end
local fence = tonumber(seen[2]) or 0
if seen[1] then return {0, redis.call('PTTL', KEYS[1]), fence} end
if redis.call('EXISTS', KEYS[1]) == 1 then return {OTHER_KIND} end
return {1, fence}
