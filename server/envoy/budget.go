package envoy

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"tributary/memstore"
	"tributary/resource"
	"tributary/server/envoy/model"
)

// budget limits the memory that the objects of a namespace take after they are multiplied: see resource.Multiplied. It
// refuses the largest objects. The choice depends on the objects alone, not on their order. Catalog.mu guards it.
type budget struct {
	limit     int64 // bytes of a namespace; negative for no limit
	log       *slog.Logger
	sizes     map[string]map[resource.Key]int64     // of the objects that multiply, by namespace
	delegates map[resource.Key][]resource.Key       // of the VirtualServices with routes that delegate
	selecting map[string]map[resource.Key]selection // the ServiceEntries that select workloads, by namespace
	workloads map[string]map[resource.Key]selection // the WorkloadEntries, by namespace
	refused   map[resource.Key]int64                // with the size of the namespace
	lastGood  map[resource.Key]int64                // the sizes of the versions that the mesh keeps of refused objects
}

func newBudget(limit int64, log *slog.Logger) *budget {
	return &budget{
		limit:     cmp.Or(limit, resource.MaxProducts),
		log:       log,
		sizes:     make(map[string]map[resource.Key]int64),
		delegates: make(map[resource.Key][]resource.Key),
		selecting: make(map[string]map[resource.Key]selection),
		workloads: make(map[string]map[resource.Key]selection),
		refused:   make(map[resource.Key]int64),
		lastGood:  make(map[resource.Key]int64),
	}
}

// admit takes over the objects of keys from a view. It returns the keys of the objects that the mesh must set, or
// remove if they are refused. The mesh keeps its version of the other refused ones; inMesh reports whether it has one.
func (b *budget) admit(keys []resource.Key, view memstore.Snapshot, inMesh func(resource.Key) bool) []resource.Key {
	if b.limit < 0 {
		return keys
	}
	changed := make(map[string]bool) // namespaces
	before := make(map[resource.Key]int64)
	dependent := make(map[resource.Key]bool) // objects that multiply by others
	noteDependent := func(keys []resource.Key) {
		for _, key := range keys {
			_, selects := b.selecting[key.Namespace][key]
			dependent[key] = dependent[key] || selects || b.delegates[key] != nil
		}
	}
	noteDependent(keys)
	concerned := b.withSelecting(b.withRoots(keys, view), view)
	noteDependent(concerned)
	for _, key := range concerned {
		sizes := b.sizes[key.Namespace]
		selection := b.selecting[key.Namespace][key]
		size := resource.Multiplied(view.Get(key), view.Get) + selection.endpoints*selection.bytes
		before[key] = sizes[key]
		if size == 0 && sizes[key] == 0 {
			continue
		}
		changed[key.Namespace] = true
		if sizes == nil {
			sizes = make(map[resource.Key]int64)
			b.sizes[key.Namespace] = sizes
		}
		sizes[key] = size
		if size == 0 {
			delete(sizes, key)
			delete(b.refused, key)
			delete(b.lastGood, key)
		}
	}
	if len(changed) == 0 {
		return keys
	}
	toSet := make(map[resource.Key]bool, len(keys))
	for _, key := range keys {
		toSet[key] = true
	}
	for namespace := range changed {
		b.refuseLargest(b.sizes[namespace], before, toSet,
			func(key resource.Key) bool { return inMesh(key) && !dependent[key] })
	}
	return slices.SortedFunc(maps.Keys(toSet), resource.Key.Compare)
}

// withRoots returns keys and those of the VirtualServices that delegate to one of them: their sizes change as well.
func (b *budget) withRoots(keys []resource.Key, view memstore.Snapshot) []resource.Key {
	changed := make(map[resource.Key]bool)
	for _, key := range keys {
		if key.Kind != resource.VirtualService {
			continue
		}
		changed[key] = true
		if delegates := resource.Delegates(view.Get(key)); len(delegates) > 0 {
			b.delegates[key] = delegates
		} else {
			delete(b.delegates, key)
		}
	}
	if len(changed) == 0 {
		return keys
	}
	result := slices.Clone(keys)
	for root, delegates := range b.delegates {
		if !changed[root] && slices.ContainsFunc(delegates, func(key resource.Key) bool { return changed[key] }) {
			result = append(result, root)
		}
	}
	return result
}

// selection is the part of a ServiceEntry with a workload selector that counts, or that of a WorkloadEntry.
type selection struct {
	labels    map[string]string // of the selector; of the workload
	endpoints int64             // that the ServiceEntry makes of each workload; 0 for a WorkloadEntry
	bytes     int64             // of one endpoint of each selected workload, together; of one endpoint of the workload
}

// withSelecting takes over workloads and the ServiceEntries that select them. It returns keys and those of the
// ServiceEntries that select other workloads than before.
func (b *budget) withSelecting(keys []resource.Key, view memstore.Snapshot) []resource.Key {
	result := slices.Clone(keys)
	replace := func(spaces map[string]map[resource.Key]selection, key resource.Key, selected selection) {
		delete(spaces[key.Namespace], key)
		if selected.labels == nil {
			return
		}
		if spaces[key.Namespace] == nil {
			spaces[key.Namespace] = make(map[resource.Key]selection)
		}
		spaces[key.Namespace][key] = selected
	}
	for _, key := range keys {
		object := view.Get(key)
		switch key.Kind {
		case resource.WorkloadEntry:
			before, after := b.workloads[key.Namespace][key], selection{}
			after.labels, after.bytes = resource.Workload(object)
			replace(b.workloads, key, after)
			for entry, selected := range b.selecting[key.Namespace] {
				if change := selected.bytesOf(after) - selected.bytesOf(before); change != 0 {
					selected.bytes += change
					b.selecting[key.Namespace][entry] = selected
					result = append(result, entry)
				}
			}
		case resource.ServiceEntry:
			var selected selection
			selected.labels, selected.endpoints = resource.Selection(object)
			for _, workload := range b.workloads[key.Namespace] {
				selected.bytes += selected.bytesOf(workload)
			}
			replace(b.selecting, key, selected)
		}
	}
	slices.SortFunc(result, resource.Key.Compare)
	return slices.Compact(result)
}

// bytesOf returns the bytes of an endpoint of a workload if s selects it.
func (s selection) bytesOf(workload selection) int64 {
	if len(s.labels) == 0 || workload.labels == nil || !model.SelectsLabels(s.labels, workload.labels) {
		return 0
	}
	return workload.bytes
}

// refuseLargest refuses the largest objects of a namespace, until the others fit. Last good versions may take as much
// once more; objects that multiply by others have none, since these go on changing.
func (b *budget) refuseLargest(
	sizes, before map[resource.Key]int64, toSet map[resource.Key]bool, inMesh func(resource.Key) bool,
) {
	var total, fitting, lastGood int64
	for _, size := range sizes {
		total += size
	}
	for _, key := range slices.SortedFunc(maps.Keys(sizes), func(x, y resource.Key) int {
		return cmp.Or(cmp.Compare(sizes[x], sizes[y]), x.Compare(y))
	}) {
		_, refused := b.refused[key]
		fitting += sizes[key]
		if fitting <= b.limit {
			toSet[key] = toSet[key] || refused
			delete(b.refused, key)
			delete(b.lastGood, key)
			continue
		}
		lastGoodSize, changes := before[key]
		if !changes {
			lastGoodSize = sizes[key]
		}
		if refused {
			lastGoodSize = b.lastGood[key]
		}
		b.refused[key] = total
		if inMesh(key) && lastGood+lastGoodSize <= b.limit {
			lastGood += lastGoodSize
			b.lastGood[key] = lastGoodSize
			delete(toSet, key)
		} else {
			toSet[key] = true
			delete(b.lastGood, key)
		}
		if !refused {
			b.log.Error("object is refused, since those of its namespace multiply too much",
				"object", key.String(), "why", b.why(key))
		}
	}
	maps.DeleteFunc(toSet, func(_ resource.Key, toSet bool) bool { return !toSet })
}

// why returns the reason why an object is refused, or "".
func (b *budget) why(key resource.Key) string {
	total, refused := b.refused[key]
	if !refused {
		return ""
	}
	serves := "it is not served to Envoys"
	if _, inForce := b.lastGood[key]; inForce {
		serves = "Envoys keep its last version"
	}
	return fmt.Sprintf("the objects of namespace %s multiply into %d MB of memory, and the largest are refused: "+
		"split this one, or raise limits.productBytes, which is %d; until then, %s",
		key.Namespace, total>>20, b.limit, serves)
}

// Refused returns the objects that the limit of products refuses, with the reason. Before the first Envoy or gRPC
// client it works out the objects that would be refused.
func (c *Catalog) Refused() map[resource.Key]string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	current := c.budget
	if !c.meshReady.isGiven() && current.limit >= 0 {
		current = newBudget(current.limit, slog.New(slog.DiscardHandler))
		snapshot := c.view.Snapshot()
		var keys []resource.Key
		for object := range snapshot.All() {
			keys = append(keys, object.Key())
		}
		current.admit(keys, snapshot, func(resource.Key) bool { return false })
	}
	reasons := make(map[resource.Key]string, len(current.refused))
	for key := range current.refused {
		reasons[key] = current.why(key)
	}
	return reasons
}
