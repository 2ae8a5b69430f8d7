package guard

import "tributary/resource"

// Reread announces that the source will be read with changed settings. Until MarkSynced, what it lacks is not a new loss: the edit is
// intended. Existing holds stay.
func (g *Guard) Reread() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.newSettingsUnread = true
}

// Inherit takes over table content, hold and recent losses from the guard of the same source under its former settings. Call it on an empty
// table, and do not use `from` afterwards. The source will be read again, as after Reread.
func (g *Guard) Inherit(from *Guard) {
	from.mu.Lock()
	has, peak, recent, held, last, holds := from.has, from.peak, from.recent, from.hold, from.last, from.holds
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
	g.has, g.peak, g.recent, g.hold, g.last, g.holds = has, peak, recent, held, last, holds
	g.newSettingsUnread = true
	if g.hold == nil {
		return
	}
	if g.settings.Off {
		g.release("the guard was turned off")
		return
	}
	g.wakeRun() // the hold may end at another time
}
