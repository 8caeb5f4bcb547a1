-- KEYS lock, fence, marker
-- ARGV fence_ttl_ms, marker
-- answers {1, fence} deleted · {-3} absent · {-1} stranger · {-4} another kind

local seen = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
if seen[3] ~= ARGV[#ARGV] then return {STRANGER} end
if not seen[1] and redis.call('EXISTS', KEYS[1]) == 1 then return {OTHER_KIND} end
redis.call('DEL', KEYS[1])
local fence = raise_fence((tonumber(seen[2]) or 0) + 1, 0, ARGV[1])
if seen[1] then return {1, fence} end
return {ABSENT}
