-- KEYS lock, queue of every lock
-- ARGV token ('' : only leaves the queues), wake (1 or 0), member ('' without a ticket), locker, stay_ms, channel
-- answers 1 deleted all that are ours · 2 deleted, and somebody elsewhere is next · 0 another's · -3 absent

local token, wake, member, locker, stay_ms, channel = unpack(ARGV)
local deleted, held, others, seen = false, false, false, {}
for i = 1, #KEYS, 2 do
  local lock, queue = KEYS[i], KEYS[i + 1]
  local holder = redis.pcall('GET', lock)
  local mine = holder == token
  if mine and stay_ms == '0' then
    redis.call('DEL', lock)
  elseif mine then
    redis.call('SET', lock, 'ql:closed', 'PX', stay_ms)
  end
  deleted, held = deleted or mine, held or holder
  --+ if mine then note_end(lock, token, true, wake) end
  if wake == '1' then
    if member ~= '' and not seen[queue] then redis.call('ZREM', queue, member, 'u:' .. member) end
    local sharing = token == '' and holder == 'ql:readers' -- those behind who leaves may come in
    local free = mine or sharing or not holder and token == ''
    if free and (mine or not seen[queue]) then others = tell(queue, channel, locker, sharing) or others end
    seen[queue] = true
  end
end
--+ for i = 1, deleted and 0 or #KEYS, 2 do note_end(KEYS[i], token, false, wake) end
if deleted then return others and 2 or 1 end
return held and 0 or -3
