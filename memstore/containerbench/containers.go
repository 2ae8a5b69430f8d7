// Package containerbench compares the containers that a store of 100,000 resources could be made of. It is a module of
// its own, so that the losers are no dependencies of the product. README.md has the result.
package containerbench

import (
	"cmp"
	"slices"
	"strings"

	gbtree "github.com/google/btree"
	iradix "github.com/hashicorp/go-immutable-radix/v2"
	"github.com/hashicorp/go-memdb"
	"github.com/tidwall/btree"
)

// object stands for *resource.Resource: what matters here is that it is behind a pointer.
type object struct {
	Namespace, Name string
	Body            []byte
}

// container is an ordered set of objects. A snapshot does not change when the container does.
type container interface {
	put(*object)
	snapshot() snapshot
}

type snapshot interface {
	get(namespace, name string) *object
	list(namespace string, yield func(*object) bool)
	all(yield func(*object) bool)
}

// containers are the contenders, by name.
var containers = []struct {
	name string
	new  func() container
}{
	{"tidwall-btree-rows-32", func() container { return newTidwallRows(32) }},
	{"tidwall-btree-rows-16", func() container { return newTidwallRows(16) }},
	{"tidwall-btree-rows-8", func() container { return newTidwallRows(8) }},
	{"tidwall-btree-pointers", newTidwallPointers},
	{"google-btree-rows", newGoogle},
	{"immutable-radix", newRadix},
	{"go-memdb", newMemdb},
	{"paged-slice", newPaged},
	{"copied-slice", newCopied},
}

// row is an object with its name inline.
type row struct {
	namespace, name string
	obj             *object
}

func (a row) compare(b row) int {
	return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
}

func (a row) less(b row) bool {
	if a.namespace != b.namespace {
		return a.namespace < b.namespace
	}
	return a.name < b.name
}

// tidwall/btree, items with the name inline.
type tidwallRows struct{ *btree.BTreeG[row] }

func newTidwallRows(degree int) container {
	return tidwallRows{btree.NewBTreeGOptions(row.less, btree.Options{NoLocks: true, Degree: degree})}
}

func (t tidwallRows) put(o *object)      { t.Set(row{o.Namespace, o.Name, o}) }
func (t tidwallRows) snapshot() snapshot { return tidwallRows{t.Copy()} }
func (t tidwallRows) get(namespace, name string) *object {
	r, _ := t.Get(row{namespace: namespace, name: name})
	return r.obj
}

func (t tidwallRows) list(namespace string, yield func(*object) bool) {
	t.Ascend(row{namespace: namespace}, func(r row) bool { return r.namespace == namespace && yield(r.obj) })
}

func (t tidwallRows) all(yield func(*object) bool) { t.Scan(func(r row) bool { return yield(r.obj) }) }

// tidwall/btree, items that are pointers.
type tidwallPointers struct{ *btree.BTreeG[*object] }

func newTidwallPointers() container {
	less := func(a, b *object) bool {
		if a.Namespace != b.Namespace {
			return a.Namespace < b.Namespace
		}
		return a.Name < b.Name
	}
	return tidwallPointers{btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
}

func (t tidwallPointers) put(o *object)      { t.Set(o) }
func (t tidwallPointers) snapshot() snapshot { return tidwallPointers{t.Copy()} }
func (t tidwallPointers) get(namespace, name string) *object {
	o, _ := t.Get(&object{Namespace: namespace, Name: name})
	return o
}

func (t tidwallPointers) list(namespace string, yield func(*object) bool) {
	t.Ascend(&object{Namespace: namespace}, func(o *object) bool { return o.Namespace == namespace && yield(o) })
}
func (t tidwallPointers) all(yield func(*object) bool) { t.Scan(yield) }

// google/btree, items with the name inline.
type google struct{ *gbtree.BTreeG[row] }

func newGoogle() container          { return google{gbtree.NewG(32, row.less)} }
func (g google) put(o *object)      { g.ReplaceOrInsert(row{o.Namespace, o.Name, o}) }
func (g google) snapshot() snapshot { return google{g.Clone()} }
func (g google) get(namespace, name string) *object {
	r, _ := g.Get(row{namespace: namespace, name: name})
	return r.obj
}

func (g google) list(namespace string, yield func(*object) bool) {
	g.AscendGreaterOrEqual(row{namespace: namespace}, func(r row) bool { return r.namespace == namespace && yield(r.obj) })
}
func (g google) all(yield func(*object) bool) { g.Ascend(func(r row) bool { return yield(r.obj) }) }

// hashicorp/go-immutable-radix.
type radix struct{ root *iradix.Tree[*object] }

func newRadix() container { return &radix{iradix.New[*object]()} }
func radixKey(namespace, name string) []byte {
	return append(append(append(make([]byte, 0, len(namespace)+1+len(name)), namespace...), 0), name...)
}

func (r *radix) put(o *object)      { r.root, _, _ = r.root.Insert(radixKey(o.Namespace, o.Name), o) }
func (r *radix) snapshot() snapshot { return &radix{r.root} }
func (r *radix) get(namespace, name string) *object {
	o, _ := r.root.Get(radixKey(namespace, name))
	return o
}

func (r *radix) list(namespace string, yield func(*object) bool) {
	r.root.Root().WalkPrefix(radixKey(namespace, ""), func(_ []byte, o *object) bool { return !yield(o) })
}

func (r *radix) all(yield func(*object) bool) {
	r.root.Root().Walk(func(_ []byte, o *object) bool { return !yield(o) })
}

// hashicorp/go-memdb.
type memDB struct{ *memdb.MemDB }

func newMemdb() container {
	db, err := memdb.NewMemDB(&memdb.DBSchema{Tables: map[string]*memdb.TableSchema{"object": {
		Name: "object",
		Indexes: map[string]*memdb.IndexSchema{"id": {Name: "id", Unique: true, Indexer: &memdb.CompoundIndex{
			Indexes: []memdb.Indexer{&memdb.StringFieldIndex{Field: "Namespace"}, &memdb.StringFieldIndex{Field: "Name"}},
		}}},
	}}})
	if err != nil {
		panic(err)
	}
	return memDB{db}
}

func (m memDB) put(o *object) {
	txn := m.Txn(true)
	if err := txn.Insert("object", o); err != nil {
		panic(err)
	}
	txn.Commit()
}
func (m memDB) snapshot() snapshot { return memDB{m.Snapshot()} }
func (m memDB) get(namespace, name string) *object {
	o, err := m.Txn(false).First("object", "id", namespace, name)
	if err != nil || o == nil {
		return nil
	}
	return o.(*object)
}

func (m memDB) list(namespace string, yield func(*object) bool) {
	m.iterate(yield, "id_prefix", namespace+"\x00")
}
func (m memDB) all(yield func(*object) bool) { m.iterate(yield, "id") }

func (m memDB) iterate(yield func(*object) bool, index string, args ...any) {
	it, err := m.Txn(false).Get("object", index, args...)
	if err != nil {
		panic(err)
	}
	for o := it.Next(); o != nil; o = it.Next() {
		if !yield(o.(*object)) {
			return
		}
	}
}

// paged is a sorted slice in pages: a change copies one page and the directory of pages, both about √n.
type paged struct{ pages [][]row }

const maxPage = 256

func newPaged() container { return &paged{} }

func (p *paged) find(target row) (page, index int, found bool) {
	page, found = slices.BinarySearchFunc(p.pages, target, func(rows []row, t row) int { return rows[0].compare(t) })
	if found {
		return page, 0, true
	}
	page = max(page-1, 0)
	if len(p.pages) > 0 {
		index, found = slices.BinarySearchFunc(p.pages[page], target, row.compare)
	}
	return page, index, found
}

func (p *paged) put(o *object) {
	r := row{o.Namespace, o.Name, o}
	page, index, found := p.find(r)
	pages := slices.Clone(p.pages)
	switch {
	case len(pages) == 0:
		pages = [][]row{{r}}
	case found:
		pages[page] = slices.Clone(pages[page])
		pages[page][index] = r
	default:
		rows := slices.Insert(slices.Clone(pages[page]), index, r)
		pages[page] = rows
		if len(rows) > maxPage {
			pages[page] = slices.Clone(rows[:maxPage/2])
			pages = slices.Insert(pages, page+1, slices.Clone(rows[maxPage/2:]))
		}
	}
	p.pages = pages
}
func (p *paged) snapshot() snapshot { return &paged{p.pages} }
func (p *paged) get(namespace, name string) *object {
	if page, index, found := p.find(row{namespace: namespace, name: name}); found {
		return p.pages[page][index].obj
	}
	return nil
}

func (p *paged) list(namespace string, yield func(*object) bool) {
	page, index, _ := p.find(row{namespace: namespace})
	for ; page < len(p.pages); page++ {
		for _, r := range p.pages[page][index:] {
			if r.namespace != namespace || !yield(r.obj) {
				return
			}
		}
		index = 0
	}
}

func (p *paged) all(yield func(*object) bool) {
	for _, rows := range p.pages {
		for _, r := range rows {
			if !yield(r.obj) {
				return
			}
		}
	}
}

// copied is a sorted slice, copied as a whole by each change: what a simple store does.
type copied struct{ rows []row }

func newCopied() container { return &copied{} }

func (c *copied) put(o *object) {
	r := row{o.Namespace, o.Name, o}
	i, found := slices.BinarySearchFunc(c.rows, r, row.compare)
	rows := make([]row, len(c.rows), len(c.rows)+1)
	copy(rows, c.rows)
	if found {
		rows[i] = r
	} else {
		rows = slices.Insert(rows, i, r)
	}
	c.rows = rows
}
func (c *copied) snapshot() snapshot { return &copied{c.rows} }
func (c *copied) get(namespace, name string) *object {
	if i, found := slices.BinarySearchFunc(c.rows, row{namespace: namespace, name: name}, row.compare); found {
		return c.rows[i].obj
	}
	return nil
}

func (c *copied) list(namespace string, yield func(*object) bool) {
	i, _ := slices.BinarySearchFunc(c.rows, row{namespace: namespace}, row.compare)
	for _, r := range c.rows[i:] {
		if r.namespace != namespace || !yield(r.obj) {
			return
		}
	}
}

func (c *copied) all(yield func(*object) bool) {
	for _, r := range c.rows {
		if !yield(r.obj) {
			return
		}
	}
}
