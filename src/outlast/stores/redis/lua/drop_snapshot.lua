-- Delete the snapshot of a run.
--
-- KEYS     wf:ID:snapshot, idx:snapshots
-- ARGV[2]  the run's id
-- Returns  {"done", "1" if there was one}

-- include: prelude

local gone = call('DEL', at('wf:' .. encoded(ARGV[2]) .. ':snapshot'))
call('ZREM', at('idx:snapshots'), ARGV[2])
return { 'done', int(gone) }
