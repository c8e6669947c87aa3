-- Quarantine a run whose state is older than what was acknowledged (after a failover), or end that.
--
-- KEYS     wf:ID:state, token, runnable, held
-- ARGV[2]  msgpack: id, uid, revision (that was acknowledged), reason; without reason the quarantine ends
-- Returns  {"want", keys}, {"fine"} if there is nothing to do, or {"done"}

-- include: prelude
-- include: runs

local args = cmsgpack.unpack(ARGV[2])
local run = find(args.id)
need('token')
need_claim_indexes()
if #missing > 0 then
    return { 'want', missing }
end
if not run or is_ended(run) then
    return { 'fine' }
end
if not args.reason then
    if not run.quarantine then
        return { 'fine' }
    end
    set(run, 'quarantine', nil)
    set(run, 'runnable', now_text)
    index_claim(run)
    flush()
    return { 'done' }
end
if run.quarantine or run.uid ~= args.uid or tonumber(run.revision) >= tonumber(args.revision) then
    return { 'fine' }
end
unindex_claim(run)
set(run, 'runnable', nil)
set(run, 'owner', nil)
set(run, 'until', nil)
set(run, 'token', next_token())
set(run, 'quarantine', args.reason)
flush()
return { 'done' }
