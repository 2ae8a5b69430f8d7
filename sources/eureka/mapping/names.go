package mapping

import (
	"cmp"
	"net/url"
	"strconv"
	"strings"

	"tributary/internal/names"
	"tributary/sources/registry"
)

// ID is what services are told apart by: hosts, and of these the plain and the secure port, since not all instances have both. App is empty
// if hosts do not tell applications apart, and VIP if they tell nothing else apart.
type ID struct {
	VIP, App string
	Secure   bool
}

// Compare orders IDs.
func (id ID) Compare(o ID) int {
	plainFirst := func(id ID) string { return strconv.FormatBool(id.Secure) }
	return cmp.Or(cmp.Compare(id.VIP, o.VIP), cmp.Compare(id.App, o.App), cmp.Compare(plainFirst(id), plainFirst(o)))
}

// Group is that of the host, with both ports. It is different for each.
func (id ID) Group() string {
	if id.App == "" {
		return url.QueryEscape(id.VIP)
	}
	return url.QueryEscape(id.VIP) + "@" + url.QueryEscape(id.App)
}

func (id ID) String() string { return id.Group() }

// Host implements registry.Mapping.
func (m *Mapper) Host(id ID) ID { return ID{VIP: id.VIP, App: id.App} }

// secureSuffix is that of the object with the secure port. The name of no other one has a dot.
const secureSuffix = ".secure"

// Names implements registry.Mapping. Of hosts that would have one name, the one that is nearest to it has it.
func (m *Mapper) Names(hosts []ID) map[ID]registry.Name {
	return names.Distinct(hosts, func(a, b ID) int {
		far := func(id ID) int { return names.Distance(id.VIP) + names.Distance(id.App) }
		return cmp.Or(cmp.Compare(far(a), far(b)), a.Compare(b))
	}, func(id ID, toHash string) (n registry.Name, host, object string) {
		n = m.name(id, toHash)
		return n, n.Host, n.Object
	})
}

// name returns the name of a host; with something to hash it is not that of another.
func (m *Mapper) name(id ID, toHash string) registry.Name {
	part := func(text string, hashed bool) []string {
		all := names.Parts(text)
		if len(all) == 0 {
			all = []string{names.Hashed("", id.Group(), names.MaxLabel)}
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
	return registry.Name{
		Host:   names.FitHost(host, id.Group()+toHash),
		Object: names.Fit(strings.Join(base, "-"), id.Group()+toHash, names.MaxName-len(secureSuffix)),
	}
}
