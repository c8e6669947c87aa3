-- Remove a run with its descendants and all they own.
--
-- ARGV[2]  msgpack: id, uid if only that life is to go, and for retention: before (microseconds, text), statuses (a list or nil)
--          only_ended if a tree with runs that have not ended is to stay, but for those that open_at maps to their
--          last commit, or to false; sends: items that are delivered if the tree goes
--          checked: the caller has read that all descendants have ended since this call answered "check", with that
-- Returns  {"want", keys}, {"open", ids} of some runs that have not ended, {"kept"} if it must not be touched,
--          {"check", name} if the tree is large: the caller reads whether all descendants have ended and calls again,
--          or {"done" or "marked", "1" if it was there, whether the outbox was used}: "marked" if what is
--          below the root is to be removed in portions (remove.lua)

-- include: head
-- include: runs
-- include: inbox
-- include: tasks
-- include: ending

local wish = cmsgpack.unpack(ARGV[2])

-- Whether a tree may go by age: its root ended long enough ago, as it should have, and nothing lives.
local function is_old(tree)
    local root = find(wish.id)
    if not root or not root.ended or tonumber(root.ended) >= tonumber(wish.before) then
        return false
    end
    local is_wanted = not wish.statuses
    for _, status in ipairs(wish.statuses or {}) do
        is_wanted = is_wanted or status == root.status
    end
    for _, id in ipairs(tree.ids) do
        is_wanted = is_wanted and is_over(find(id))
    end
    return is_wanted
end

-- What a caller that reads whether all descendants have ended is to come back with: it holds as long as none
-- of them changes. Nil if this is the answer of one who has.
local function check_of(id)
    local mark = deleting and deleting[id]
    if mark and mark.kind == 'check' and mark.name == wish.checked then
        return nil
    end
    if not (mark and mark.kind == 'check') then
        mark = { kind = 'check', at = now_text, name = int(server_time()) .. ' ' .. wish.nonce }
        set_mark(id, mark)
    end
    return mark.name
end

-- Whether a run that has not ended is as the caller has seen it.
local function is_seen(run)
    local at_commit = wish.open_at[run.id]
    return at_commit == false or at_commit == (run.commit or '')
end

local before = deleting and deleting[wish.id]
if before and before.kind ~= 'check' then
    need('deleting:' .. wish.id)  -- what is left of a life before
end
local tree = plan_tree(wish.id)
for _, send in ipairs(wish.sends or {}) do
    if send.to then
        need_outbox()
    else
        need_delivery(send)
    end
end
if #missing > 0 then
    return { 'want', missing }
end
if wish.before and not is_old(tree) then
    return { 'kept' }
end
local root = find(wish.id)
if wish.uid and not (root and root.uid == wish.uid) then
    return { 'kept' }
end
if wish.only_ended then
    local open = {}
    for _, id in ipairs(tree.ids) do
        local run = find(id)
        if #open < 100 and not is_over(run) and not is_seen(run) then
            open[#open + 1] = id
        end
    end
    if #open > 0 then
        return { 'open', open }
    end
end
local check = tree.mark and (wish.before or wish.only_ended) and check_of(wish.id)
if check then
    return { 'check', check }
end
forget_tree(wish.id, tree)
for _, send in ipairs(wish.sends or {}) do
    if send.to then
        post(send.entry)
    else
        deliver(send)
    end
end
flush()
return { tree.mark and 'marked' or 'done', tree.found and '1' or '0', (has_posted or has_returns) and '1' or '0' }
