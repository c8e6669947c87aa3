-- Commits: decide for all, then write for all. The whole of `outlast.model.commit_rules`, in its order.
--
-- KEYS     what the commits touch, see lib/*.lua
-- ARGV[2]  msgpack list of commits, as commits.py makes them
-- ARGV[3]  "1": one refusal refuses all
-- Returns  {"want", keys}, or {"done", {outcome, …}, whether the outbox was used, the roots of trees that are
--          to be removed in portions}, an outcome being
--          {"ok", uid, sequence, revision, token, still_runnable, {fired}, {undelivered}}
--          {"again", uid, sequence, revision, token}
--          {"notfound"} {"exists", uid} {"closed", status} {"busy"}
--          {"fenced", token, uid, revision} {"conflict", what, actual, uid, revision}
--          {"duplicate", event id, sequence} {"lost", n-th of finishes}

-- include: head
-- include: runs
-- include: inbox
-- include: tasks
-- include: ending
-- include: parts
-- include: writing

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
    flush()  -- each is whole, should the next one meet a key that is not of its type
end
local marked = {}
for n in pairs(plans) do
    if plans[n].mark and outcomes[n][1] == 'ok' then
        marked[#marked + 1] = commits[n].run
    end
end
return { 'done', outcomes, (has_posted or has_returns) and '1' or '0', marked }
