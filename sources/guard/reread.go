package guard

import "tributary/resource"

// Reread says that the source is about to be read by other settings than those by which the table was made. Until it has been read as a
// whole, what it lacks is by these settings: who edits them means it. What was held before is held on.
func (g *Guard) Reread() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rereading = true
}

// Inherit takes over from the guard of the same source, by other settings, what is in its table, what it holds and what it has seen go;
// the source is about to be read anew, as with Reread. The table of this one is empty. Nobody uses the other one any more.
func (g *Guard) Inherit(from *Guard) {
	from.mu.Lock()
	has, most, recent, held, last, holds := from.has, from.most, from.recent, from.hold, from.last, from.holds
	before := from.table.Snapshot()
	from.hold = nil
	from.mu.Unlock()

	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]*resource.Resource, 0, before.Len())
	for r := range before.All() {
		all = append(all, r)
	}
	g.table.Apply(all, nil)
	g.has, g.most, g.recent, g.hold, g.last, g.holds = has, most, recent, held, last, holds
	g.rereading = true
	if g.hold == nil {
		return
	}
	if g.settings.Off {
		g.release("the guard was turned off")
		return
	}
	g.ring() // the end of the hold may be another
}
