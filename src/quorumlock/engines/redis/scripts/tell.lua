-- Before release_many.lua, unread.lua and downgrade.lua: who is next.
--
-- Tells the first of a queue that hears it; of those who want to share, all up to one who does not. True if somebody
-- elsewhere than in `locker` is next. (Members of the queue: see turn.lua.)
local function tell(queue, channel, locker, sharing)
  local others, at = false, 0
  while true do
    local head = redis.call('ZRANGEBYSCORE', queue, 0, '+inf', 'LIMIT', at, 1)[1]
    local reader = head and string.sub(head, -2) == '~r'
    if not head or (at > 0 or sharing) and not reader then return others end
    local where, id = string.match(head, '^([^:]*):(.*)$')
    if where == '' or where == locker or redis.pcall('PUBLISH', channel .. where, id) ~= 0 then
      others = others or where ~= locker or where == ''
      if not reader then return others end
      at = at + 1
    else
      redis.call('ZREM', queue, head, 'u:' .. head) -- nobody is there any more
    end
  end
end
