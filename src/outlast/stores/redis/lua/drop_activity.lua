-- Remove an activity state that a run of another partition has saved since.
--
-- KEYS     act:ACTIVITY:state, wf:ID:activities of its owner here
-- ARGV[2]  msgpack: id, run (the owner here)
-- Returns  {"done"}

-- include: head

local wish = cmsgpack.unpack(ARGV[2])
local key = at('act:' .. encoded(wish.id) .. ':state')
if call('HGET', key, 'run') == wish.run then
    call('DEL', key)
    call('SREM', at('wf:' .. encoded(wish.run) .. ':activities'), wish.id)
end
return { 'done' }
