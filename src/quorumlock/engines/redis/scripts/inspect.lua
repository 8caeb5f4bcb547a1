-- KEYS lock, fence, marker, queue, readers
-- ARGV marker
-- answers {1, value, pttl, fence and card, {reader, ms left, …}, {waiter, …}} · {-1} stranger · {-4} another kind
--
-- Also in quarantine: this is for people, and no vote.

if refusal and refusal[1] == STRANGER then return refusal end
if not seen[1] and redis.call('EXISTS', lock) == 1 then return {OTHER_KIND} end
local readers = redis.call('ZRANGE', KEYS[5], 0, 999, 'WITHSCORES')
for i = 2, #readers, 2 do readers[i] = math.floor(readers[i] - now / 1000) end
local waiters = redis.call('ZRANGEBYSCORE', KEYS[4], 0, '+inf', 'LIMIT', 0, 1000)
return {1, seen[1] or '', redis.call('PTTL', lock), seen[2] or '', readers, waiters}
