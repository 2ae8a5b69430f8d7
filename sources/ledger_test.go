package sources

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources/guard"
)

// newObject returns a resource called name. Its content is 1 at the place p, or as details say.
func newObject(name string, details ...string) *resource.Resource {
	content, place := "1", "p"
	for i, detail := range details {
		*[]*string{&content, &place}[i] = detail
	}
	return resource.FromBody(resource.Meta{Key: keyed(name), Origin: resource.Origin{Source: "test", Place: place}}, []byte(content))
}

func objects(list ...*resource.Resource) []*resource.Resource { return list }

func get(table Table, name string) *resource.Resource {
	return table.Snapshot().Get(keyed(name))
}

func requireLen(t *testing.T, table Table, n int) {
	t.Helper()
	require.Equal(t, n, table.Snapshot().Len())
}

// replaceGroup replaces one group, seconds after 1970.
func replaceGroup(l *ledger, seconds int64, content Content) change {
	return l.replace([]admitted{{Content: content}}, time.Unix(seconds, 0))
}

func keyed(name string) resource.Key {
	return resource.Key{Kind: resource.ServiceEntry, Namespace: "default", Name: name}
}

// emptyLedger returns a ledger whose guard has no hold.
func emptyLedger() *ledger { return newLedger(guard.New(guard.Settings{}, memstore.Snapshot{})) }

// TestLedger compares the ledger, through random histories, with a model that is computed from scratch at each step.
func TestLedger(t *testing.T) {
	groups := []string{"a", "b", "c"}
	names := []string{"x", "y", "z"}
	drawOne := func(t *rapid.T, group string) admitted {
		c := admitted{Content: Content{Group: group, Renamable: rapid.Bool().Draw(t, "renamable")}}
		n := rapid.IntRange(0, 3).Draw(t, "resources")
		for i := range n {
			name := rapid.SampledFrom(names).Draw(t, "name")
			content := rapid.SampledFrom([]string{"1", "2"}).Draw(t, "content")
			c.Resources = append(c.Resources, newObject(name, content, fmt.Sprintf("%s:%d", group, i)))
		}
		for range rapid.IntRange(0, 2).Draw(t, "rejects") {
			reject := Reject{Err: errors.New("bad"), Origin: resource.Origin{Place: group}}
			if rapid.Bool().Draw(t, "key is known") {
				reject.Key = keyed(rapid.SampledFrom(names).Draw(t, "rejected"))
			}
			c.Rejects = append(c.Rejects, reject)
		}
		return c
	}
	rapid.Check(t, func(t *rapid.T) {
		ledger := emptyLedger()
		model := newModel(groups)
		store := make(map[resource.Key]*resource.Resource) // applies the changes to a table
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			var contents []admitted
			for _, g := range groups {
				if rapid.Bool().Draw(t, "replace "+g) {
					contents = append(contents, drawOne(t, g))
				}
			}
			model.replace(contents)
			change := ledger.replace(contents, time.Unix(1, 0))
			for _, key := range change.Deletes {
				require.Contains(t, store, key)
				delete(store, key)
			}
			for _, r := range change.Puts {
				old := store[r.Key()]
				require.False(t, old != nil && resource.Equal(old, r) && old.Origin() == r.Origin(), "no object is put without a change")
				store[r.Key()] = r
			}

			want := model.winners()
			require.Len(t, store, len(want))
			for key, r := range want {
				require.NotNil(t, store[key])
				require.True(t, resource.Equal(r, store[key]) && r.Origin() == store[key].Origin(), "%s: want %s of %s, got %s of %s",
					key, r.Body(), r.Origin(), store[key].Body(), store[key].Origin())
			}
			checkCounts(t, ledger, len(want), model)
		}
		var empty []admitted
		for _, g := range ledger.groupNames() {
			empty = append(empty, admitted{Content: Content{Group: g}})
		}
		ledger.replace(empty, time.Unix(2, 0))
		require.Zero(t, ledger.uncertainCount)
		require.Equal(t, emptyLedger(), ledger, "no withdrawn object is left")
	})
}

// model is the state of a source, computed from scratch at each step.
type model struct {
	names    []string // in order
	groups   map[string]*modelGroup
	retained map[resource.Key]*resource.Resource // that no group has; by the group of its origin
}

type modelGroup struct {
	restored  bool // it is as it was found after a restart
	previous  map[resource.Key]*resource.Resource
	rejected  map[resource.Key]bool
	anonymous bool
}

func newModel(names []string) *model {
	m := &model{names: names, groups: make(map[string]*modelGroup), retained: make(map[resource.Key]*resource.Resource)}
	for _, name := range names {
		m.groups[name] = &modelGroup{}
	}
	return m
}

// owner returns the group of a key and its object; the first in order of name.
func (m *model) owner(key resource.Key) (string, *resource.Resource) {
	for _, name := range m.names {
		if r := m.groups[name].previous[key]; r != nil {
			return name, r
		}
	}
	if r := m.retained[key]; r != nil {
		return r.Origin().Group, r
	}
	return "", nil
}

func (m *model) winners() map[resource.Key]*resource.Resource {
	owners := maps.Clone(m.retained)
	for _, name := range slices.Backward(m.names) {
		maps.Copy(owners, m.groups[name].previous)
	}
	return owners
}

// restart forgets the state that is not on disk: shadowed objects and rejects.
func (m *model) restart() {
	winners := m.winners()
	for name, g := range m.groups {
		next := &modelGroup{restored: true, previous: make(map[resource.Key]*resource.Resource)}
		for key, r := range winners {
			if g.previous[key] == r || m.retained[key] == r && r.Origin().Group == name {
				next.previous[key] = r
			}
		}
		m.groups[name] = next
	}
	clear(m.retained)
}

func (m *model) replace(contents []admitted) {
	before := m.winners()
	owners, restored := make(map[resource.Key]string), make(map[resource.Key]bool)
	for key := range before {
		owners[key], _ = m.owner(key)
		restored[key] = m.groups[owners[key]].restored
	}
	var candidates []string // objects that may have moved out of a broken document
	for _, c := range contents {
		maps.DeleteFunc(m.retained, func(_ resource.Key, r *resource.Resource) bool { return r.Origin().Group == c.Group })
		if c.Renamable {
			candidates = append(candidates, c.Group)
		}
		next := &modelGroup{previous: make(map[resource.Key]*resource.Resource), rejected: make(map[resource.Key]bool)}
		for _, r := range c.Rejects {
			next.rejected[r.Key] = true
			next.anonymous = next.anonymous || r.Key == resource.Key{}
		}
		for _, r := range slices.Backward(c.Resources) {
			next.previous[r.Key()] = r
		}
		m.groups[c.Group] = next
	}
	for key, r := range before {
		if name, has := m.owner(key); has != nil {
			if m.groups[name].previous[key] != nil {
				delete(m.retained, key)
			}
			continue
		}
		keeper := ""
		for _, name := range slices.Concat(m.names, []string{owners[key]}, candidates) {
			g := m.groups[name]
			if keeper == "" && g.rejected[key] {
				keeper = name
			}
		}
		for _, name := range slices.Concat([]string{owners[key]}, candidates) {
			if keeper == "" && m.groups[name].anonymous && (name == owners[key] || !restored[key]) {
				keeper = name
			}
		}
		if keeper != "" {
			o := r.Origin()
			o.Group = keeper
			m.retained[key] = r.WithOrigin(o)
		}
	}
}

func checkCounts(t *rapid.T, l *ledger, winners int, m *model) {
	require.Equal(t, winners, l.winnerCounts[resource.ServiceEntry])
	require.Len(t, l.quarantineList(), l.quarantinedCount)
	losers := 0
	for _, c := range l.duplicateList() {
		losers += len(c.Losers)
	}
	require.Equal(t, losers, l.countDuplicates())
	unsure := 0
	for _, g := range l.groups {
		for _, isNamed := range g.lastGoodNamed {
			if !isNamed {
				unsure++
			}
		}
	}
	require.Equal(t, unsure, l.uncertainCount)
	has, repeated := len(m.retained), 0
	for name, g := range m.groups {
		has += len(g.previous)
		if g := l.groups[name]; g != nil {
			repeated += len(g.repeated)
		}
	}
	require.Equal(t, has+repeated-winners, losers)
}

// TestForeignReject_RetainsNoObject shows a file with an object of ours beside one of another API. Ours is renamed.
func TestForeignReject_RetainsNoObject(t *testing.T) {
	text := func(name string) []byte {
		return fmt.Appendf(nil, "apiVersion: v1\nkind: Service\nmetadata: {name: %[1]s}\nspec: {ports: [{port: 80}]}\n---\n"+
			"apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: %[1]s}\nspec: {hosts: [%[1]s.example]}\n", name)
	}
	for _, foreign := range []resource.Foreign{resource.ForeignIgnore, resource.ForeignWarn, resource.ForeignError} {
		ledger := emptyLedger()
		o := resource.Options{ForeignKinds: foreign}
		replaceGroup(ledger, 1, Decode("a.yaml", "a.yaml", text("two"), o))
		c := replaceGroup(ledger, 2, Decode("a.yaml", "a.yaml", text("three"), o))
		require.Equal(t, []resource.Key{keyed("two")}, c.Deletes)
		require.Len(t, ledger.winners, 1)
		switch foreign {
		case resource.ForeignError:
			require.Len(t, ledger.quarantineList(), 1)
			require.Equal(t, "Service default/three", ledger.quarantineList()[0].Key().String())
		case resource.ForeignWarn:
			require.Len(t, ledger.warningList(), 1)
			fallthrough
		default:
			require.Empty(t, ledger.quarantineList())
			require.Equal(t, 1, ledger.foreignCount)
		}
		replaceGroup(ledger, 3, Content{Group: "a.yaml"})
		require.Zero(t, ledger.foreignCount)
		require.Empty(t, ledger.groups)
	}
}

// TestLimits_KeepLastGoodVersions has files that become more than any file needs, in one document and as a whole.
func TestLimits_KeepLastGoodVersions(t *testing.T) {
	text := func(version int, spec string) string {
		document := "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: %s}\nspec: %s\n---\n"
		return fmt.Sprintf(document, "x", fmt.Sprintf("{hosts: [v%d.example]}", version)) + fmt.Sprintf(document, "z", spec)
	}
	for name, next := range map[string]struct {
		text string
		o    resource.Options
	}{
		"too deep": {text(2, strings.Repeat("[", 300)+strings.Repeat("]", 300)), resource.Options{}},
		"aliases that stand for too much": {text(2, "{a: &a ["+strings.Repeat("x, ", 9999)+"x], b: &b ["+strings.Repeat("*a, ", 999)+"*a], c: ["+
			strings.Repeat("*b, ", 999)+"*b]}"), resource.Options{}},
		"longer than a file may be": {text(2, "{hosts: [z.example]}"), resource.Options{MaxBytes: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			l := emptyLedger()
			l.replace([]admitted{{Content: Decode("a.yaml", "a.yaml", []byte(text(1, "{hosts: [z.example]}")), resource.Options{})}},
				time.Unix(1, 0))
			require.Len(t, l.winners, 2)
			version := l.winners[keyed("x")].resource.Version()
			c := replaceGroup(l, 2, Decode("a.yaml", "a.yaml", []byte(next.text), next.o))
			require.Empty(t, c.Deletes)
			require.Len(t, l.winners, 2)
			require.True(t, l.winners[keyed("z")].isLastGood)
			require.Len(t, l.quarantineList(), 1)
			require.Equal(t, next.o.MaxBytes == 0, l.winners[keyed("x")].resource.Version() != version, "documents before the limit")
		})
	}
}

// BenchmarkReplaceOne measures one changed group among many.
func BenchmarkReplaceOne(b *testing.B) {
	for _, n := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("groups=%d", n), func(b *testing.B) {
			ledger := emptyLedger()
			var groups []admitted
			for i := range n {
				name := fmt.Sprintf("e%d", i)
				groups = append(groups, admitted{Content: Content{Group: name, Resources: objects(newObject(name, "1", name))}})
			}
			ledger.replace(groups, time.Unix(1, 0))
			versions := [][]*resource.Resource{{newObject("e7", "2", "e7")}, {newObject("e7", "3", "e7")}}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				replaceGroup(ledger, 2, Content{Group: "e7", Resources: versions[i%2]})
			}
		})
	}
}

// BenchmarkBrokenGroupsInAHold breaks many groups at once, while the guard holds the loss of many objects of others.
func BenchmarkBrokenGroupsInAHold(b *testing.B) {
	for _, n := range []int{250, 1_000} {
		b.Run(fmt.Sprintf("groups=%d", n), func(b *testing.B) {
			var table memstore.Table
			ledger := newLedger(guard.New(guard.Settings{Share: 0.1}, table.Snapshot()))
			apply := func(groups []admitted) {
				_, passes := ledger.commit(groups, guard.Moment{Now: time.Unix(1, 0), Served: table.Snapshot()})
				table.Apply(passes.Puts, passes.Deletes)
			}
			var whole, lost, broken []admitted
			for i := range n {
				gone, kept := fmt.Sprintf("gone%d", i), fmt.Sprintf("kept%d", i)
				whole = append(whole,
					admitted{Content: Content{Group: gone, Resources: objects(newObject(gone, "1", gone))}})
				lost = append(lost, admitted{Content: Content{Group: gone}})
				broken = append(broken, admitted{Content: Content{Group: kept, Rejects: []Reject{{Err: errors.New("bad")}}}})
			}
			apply(whole)
			apply(lost)
			require.NotNil(b, ledger.guard.Status())
			b.ReportAllocs()
			for b.Loop() {
				ledger.replace(broken, time.Unix(2, 0))
			}
		})
	}
}
