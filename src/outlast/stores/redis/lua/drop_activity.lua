-- Delete the state of an activity that a run of another partition has saved since.
--
-- KEYS     act:ACTIVITY:state, wf:ID:activities of its owner here
-- ARGV[2]  msgpack: id, run (the owner here)
-- Returns  {"done"}

-- include: prelude

local args = cmsgpack.unpack(ARGV[2])
local key = at('act:' .. encoded(args.id) .. ':state')
if call('HGET', key, 'run') == args.run then
    call('DEL', key)
    call('SREM', at('wf:' .. encoded(args.run) .. ':activities'), args.id)
end
return { 'done' }
