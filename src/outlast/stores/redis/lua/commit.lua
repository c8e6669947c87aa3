-- Write commits: decide all, then write all. The rules are those of `outlast.model.commit_rules`, in its order.
--
-- KEYS     what the commits touch, see lib/*.lua
-- ARGV[2]  msgpack list of commits, as commit.py packs them
-- ARGV[3]  "1": one refusal refuses all
-- Returns  {"want", keys}, or {"done", {outcome, …}, whether the outbox was used, the roots of trees that are
--          to be deleted in portions}, an outcome being
--          {"ok", uid, sequence, revision, token, still_runnable, {fired}, {undelivered}}
--          {"again", uid, sequence, revision, token}
--          {"notfound"} {"exists", uid} {"closed", status} {"busy"}
--          {"fenced", token, uid, revision} {"conflict", what, actual, uid, revision}
--          {"duplicate", event id, sequence} {"lost", n-th of finishes}

-- include: prelude
-- include: runs
-- include: inbox
-- include: tasks
-- include: run_end
-- include: run_contents
-- include: write_commit

local commits = cmsgpack.unpack(ARGV[2])
local outcomes, plans, is_refused = {}, {}, false
for n, commit in ipairs(commits) do
    outcomes[n] = refusal(commit)
    if not outcomes[n] then
        plans[n] = plan(commit)
    elseif outcomes[n][1] ~= 'again' then
        is_refused = true
    end
end
if is_refused and ARGV[3] == '1' then
    for n = 1, #commits do
        outcomes[n] = outcomes[n] or { 'busy' }
    end
end
if #missing > 0 then
    return { 'want', missing }
end
for n, commit in ipairs(commits) do
    outcomes[n] = outcomes[n] or write(commit, plans[n])
    flush()  -- one by one: a key of a wrong type fails the rest only
end
local deleting_roots = {}
for n in pairs(plans) do
    if plans[n].deletion and outcomes[n][1] == 'ok' then
        deleting_roots[#deleting_roots + 1] = commits[n].run
    end
end
return { 'done', outcomes, (has_outbox_entries or has_returns) and '1' or '0', deleting_roots }
