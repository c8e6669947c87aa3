-- Remove a run with its descendants and all they own.
--
-- ARGV[2]  msgpack: id, uid if only that life is to go, and for retention: before (microseconds, text), statuses (a list or nil)
--          only_ended if a tree with runs that have not ended is to stay
-- Returns  {"want", keys}, {"open", ids} of some runs that have not ended, {"kept"} if it must not be touched, or {"done", "1" if it was there,
--          whether the outbox was used}

-- include: head
-- include: runs
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

local tree = plan_tree(wish.id)
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
        if #open < 100 and not is_over(find(id)) then
            open[#open + 1] = id
        end
    end
    if #open > 0 then
        return { 'open', open }
    end
end
forget_tree(wish.id, tree)
return { 'done', tree.found and '1' or '0', (has_posted or has_returns) and '1' or '0' }
