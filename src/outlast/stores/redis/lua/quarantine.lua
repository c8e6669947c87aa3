-- Take a run that has gone back in time away from everybody, or give it back.
--
-- KEYS     wf:ID:state, token, runnable, held
-- ARGV[2]  msgpack: id, uid, revision (that was acknowledged), reason; without reason it is given back
-- Returns  {"want", keys}, {"fine"} if there is nothing to do, or {"done"}

-- include: head
-- include: runs

local wish = cmsgpack.unpack(ARGV[2])
local run = find(wish.id)
need('token')
need_shelves()
if #missing > 0 then
    return { 'want', missing }
end
if not run or is_ended(run) then
    return { 'fine' }
end
if not wish.reason then
    if not run.quarantine then
        return { 'fine' }
    end
    set(run, 'quarantine', nil)
    set(run, 'runnable', now_text)
    shelve(run)
    flush()
    return { 'done' }
end
if run.quarantine or run.uid ~= wish.uid or tonumber(run.revision) >= tonumber(wish.revision) then
    return { 'fine' }
end
unshelve(run)
set(run, 'runnable', nil)
set(run, 'owner', nil)
set(run, 'until', nil)
set(run, 'token', next_token())
set(run, 'quarantine', wish.reason)
flush()
return { 'done' }
