package mapping

import (
	"cmp"
	"net/url"
	"strings"

	"tributary/internal/names"
)

// ID is what hosts are told apart by. App is empty if hosts do not tell applications apart, and VIP if they tell nothing else apart.
type ID struct{ VIP, App string }

// Compare orders IDs.
func (id ID) Compare(o ID) int { return cmp.Or(cmp.Compare(id.VIP, o.VIP), cmp.Compare(id.App, o.App)) }

// String is different for each.
func (id ID) String() string {
	if id.App == "" {
		return url.QueryEscape(id.VIP)
	}
	return url.QueryEscape(id.VIP) + "@" + url.QueryEscape(id.App)
}

// ParseID reads what String wrote.
func ParseID(text string) ID {
	vip, app, _ := strings.Cut(text, "@")
	part := func(s string) string {
		if plain, err := url.QueryUnescape(s); err == nil {
			return plain
		}
		return s
	}
	return ID{part(vip), part(app)}
}

// Name is what a host is called in the mesh.
type Name struct {
	Host string
	base string // of its objects
}

// secureSuffix is that of the object with the secure port. The name of no other one has a dot.
const secureSuffix = ".secure"

// Names gives each of all hosts a name of its own. Of those that would have one name, the one that is nearest to it has it. The order of
// ids does not matter.
func (m *Mapper) Names(ids []ID) map[ID]Name {
	return names.Distinct(ids, func(a, b ID) int {
		far := func(id ID) int { return names.Distance(id.VIP) + names.Distance(id.App) }
		return cmp.Or(cmp.Compare(far(a), far(b)), a.Compare(b))
	}, func(id ID, toHash string) (n Name, host, object string) {
		n = m.name(id, toHash)
		return n, n.Host, n.base
	})
}

// name returns the name of a host; with something to hash it is not that of another.
func (m *Mapper) name(id ID, toHash string) Name {
	part := func(text string, hashed bool) []string {
		all := names.Parts(text)
		if len(all) == 0 {
			all = []string{names.Hashed("", id.String(), names.MaxLabel)}
		}
		if hashed && toHash != "" {
			last := len(all) - 1
			all[last] = names.Hashed(all[last], toHash, names.MaxLabel)
		}
		return all
	}
	vip, app := part(id.VIP, id.VIP != ""), part(id.App, id.VIP == "")
	host := strings.NewReplacer("{vip}", strings.Join(vip, "."), "{app}", strings.Join(app, "-")).Replace(m.o.HostTemplate)
	var base []string
	if id.VIP != "" {
		base = vip
	}
	if id.App != "" {
		base = append(base, app...)
	}
	return Name{
		Host: names.FitHost(host, id.String()+toHash),
		base: names.Fit(strings.Join(base, "-"), id.String()+toHash, names.MaxName-len(secureSuffix)),
	}
}
