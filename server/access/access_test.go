package access

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	_ "tributary/internal/fixedseed" // of the property tests
	"tributary/resource"
	"tributary/server/identity"
	"tributary/server/xds"
)

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		glob, text string
		want       bool
	}{
		{"a", "a", true}, {"a", "ab", false}, {"a*", "ab", true}, {"a*", "a", true}, {"a*", "ba", false}, {"*b", "ab", true}, {"*b", "ba", false}, {"*", "", true}, {"", "", true}, {"", "a", false},
	} {
		require.Equal(t, c.want, matches(c.glob, c.text), "%+v", c)
	}
	for _, bad := range []string{"a*b", "**", "*a*", "a**"} {
		require.Error(t, CheckGlob(bad), bad)
	}
}

// TestSubjects compares subjects name by name: what one value contains is no name.
func TestSubjects(t *testing.T) {
	for _, c := range []struct {
		pattern, subject string
		want             bool
	}{
		{"CN=a,O=E", "CN=a,O=E", true},
		{"CN=a,O=E", "CN=b,O=E", false},
		{"CN=a,O=E", "CN=a,O=E,C=DE", false},
		{"*,O=E", "CN=a,O=E", true},
		{"*,O=E", "CN=a,OU=b,O=E", true},
		{"*,O=E", "O=E", false},
		{"*,O=E", "CN=a,O=E,C=DE", false},
		{"*,O=E", `CN=a\,O=E`, false},
		{"*,O=E", `CN=a\\\,O=E`, false},
		{"*,O=E", `CN=a\\,O=E`, true},
		{`CN=a\,O=E`, `CN=a\,O=E`, true},
		{"CN=a,*", "CN=a,O=E", true},
		{"CN=a,*", `CN=a\,O=E`, false},
		{"CN=*,O=E", "CN=x,O=E", true},
		{"CN=*,O=E", `CN=x\,y,O=E`, true},
		{"CN=*,O=E", "CN=x+UID=1,O=E", false},
		{"CN=*,O=E", "CN=x,CN=y,O=E", false},
		{"*", "CN=x", true},
		{"*,OU=b,*", "CN=a,OU=b,O=E", true},
	} {
		require.Equal(t, c.want, subjects{c.pattern}.match(c.subject), "%+v", c)
	}
	for _, good := range []string{"*", "CN=*", "*,O=E", "CN=a,*", `CN=a\*`} {
		require.NoError(t, CheckSubject(good), good)
	}
	for _, bad := range []string{"CN=a*", "CN=*a", "*O=E", "istiod", "CN=a,*,O=E", "CN=a*,O=E"} {
		require.Error(t, CheckSubject(bad), bad)
	}
	require.True(t, (&Who{Subject: []string{"*,O=E"}}).Covers(&Who{Subject: []string{"CN=a,O=E", "*,O=E"}}))
	require.False(t, (&Who{Subject: []string{"*,O=E"}}).Covers(&Who{Subject: []string{"CN=a,*"}}))
	require.False(t, (&Who{Subject: []string{"CN=*,O=E"}}).Covers(&Who{Subject: []string{"*,O=E"}}))
}

func TestWho(t *testing.T) {
	from := func(ip string) *identity.Identity {
		return identity.Of(&net.TCPAddr{IP: net.ParseIP(ip), Port: 1}, nil)
	}
	web := from("10.1.2.3")
	web.URIs = []string{"spiffe://cluster.local/ns/prod/sa/web"}
	web.Token, web.JWT = "ci", &identity.JWT{Issuer: "i", Subject: "web", Audience: []string{"a", "b"}}
	socket := identity.Of(&net.UnixAddr{Net: "unix"}, nil)
	id := "sidecar~1"
	for _, c := range []struct {
		who  Who
		i    *identity.Identity
		want bool
	}{
		{Who{}, socket, true},
		{Who{Socket: true}, socket, true},
		{Who{Socket: true}, web, false},
		{Who{CIDR: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}}, socket, false},
		{Who{CIDR: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}, web, true},
		{Who{CIDR: []netip.Prefix{netip.MustParsePrefix("11.0.0.0/8")}}, web, false},
		{Who{SPIFFE: []string{"spiffe://cluster.local/ns/prod/*"}}, web, true},
		{Who{SPIFFE: []string{"*"}}, socket, false},
		{Who{Subject: []string{"*"}}, web, false},
		{Who{Token: []string{"*"}}, socket, false},
		{Who{Token: []string{"c*"}, JWT: &JWT{Audience: []string{"b"}}}, web, true},
		{Who{Token: []string{"c*"}, JWT: &JWT{Issuer: []string{"j"}}}, web, false},
		{Who{JWT: &JWT{}}, socket, false},
		{Who{Token: []string{"ci"}, Nodes: []string{"sidecar~*"}}, web, true},
		{Who{Token: []string{"ci"}, Nodes: []string{"router~*"}}, web, false},
		{Who{Token: []string{"x"}, Nodes: []string{"sidecar~*"}}, web, false},
	} {
		sure, _ := c.who.matches(c.i, &id)
		require.Equal(t, c.want, sure, "%+v", c.who)
	}
	rules := Rules{{Who: Who{Nodes: []string{"router~*"}}, Place: "1"}, {Who: Who{Token: []string{"ci"}}, Place: "2"}}
	rule, undecided := rules.Of(web, nil)
	require.True(t, undecided)
	require.Equal(t, "2", rule.Place)
	rule, undecided = rules.Of(socket, nil)
	require.True(t, undecided)
	require.Nil(t, rule)
}

func TestServicesHaveToBeNamed(t *testing.T) {
	require.True(t, New(Allow{}).Service(Channelz))
	a := New(Allow{Namespaces: []string{"a"}, Services: []string{Reflection}})
	require.True(t, a.Service(Reflection))
	require.False(t, a.Service(Channelz), "it shows who is connected, of all namespaces")
}

func TestTypesOfEnvoy(t *testing.T) {
	for name, url := range types() {
		a := New(Allow{Types: []string{name}})
		for _, other := range types() {
			require.Equal(t, other == url, a.Type(other))
		}
		require.False(t, a.Type(xds.RuntimeURL))
	}
	require.Len(t, types(), len(Types()))
	require.True(t, New(Allow{Kinds: []string{"ServiceEntry"}}).Type(xds.RuntimeURL))
}

func texts(t *rapid.T, what string, from []string) []string {
	return rapid.SliceOfN(rapid.SampledFrom(from), 0, 3).Draw(t, what)
}

func anAllow(t *rapid.T, what string) Allow {
	globs := []string{"*", "a*", "*b", "ab", "a", "b", ""}
	return Allow{
		Kinds: texts(t, what+" kinds", []string{"*", "Service*", "*Entry", "ServiceEntry", "WorkloadEntry", "VirtualService"}), Namespaces: texts(t, what+" namespaces", globs),
		Sources: texts(t, what+" sources", globs), Types: texts(t, what+" types", []string{"*", "clusters", "c*", "routes"}), Services: texts(t, what+" services", []string{"*", "reflection", "channelz"}),
	}
}

// Whoever is said to be allowed as much as before is; and equal keys are those of which nothing can be told apart.
func TestCovers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, y := New(anAllow(t, "x")), New(anAllow(t, "y"))
		require.True(t, x.Covers(x))
		require.True(t, (*Allowed)(nil).Covers(x))
		differ := ""
		see := func(what string, x, y bool) {
			if y && !x {
				differ = what
			}
		}
		for _, ns := range []string{"", "a", "b", "ab", "aab"} {
			for _, source := range []string{"a", "b", "ab", "a, b"} {
				for _, kind := range []resource.Kind{resource.ServiceEntry, resource.WorkloadEntry, resource.VirtualService, resource.Gateway} {
					sees := func(a *Allowed) bool {
						return a == nil || a.sees(resource.Key{Kind: kind, Namespace: ns, Name: "x"}, source)
					}
					see(fmt.Sprint(kind, ns, source), sees(x), sees(y))
					require.Equal(t, sees(x), sees(x.Objects()))
				}
			}
		}
		for _, url := range types() {
			see(url, x.Type(url), y.Type(url))
		}
		for _, name := range Services() {
			see(name, x.Service(name), y.Service(name))
		}
		if x.Covers(y) || x.Key() == y.Key() {
			require.Empty(t, differ)
		}
	})
}

// A rule after one that covers it is never asked.
func TestWhoCovers(t *testing.T) {
	list := func(t *rapid.T, what string) []string {
		return texts(t, what, []string{"a", "b", "a*", "*b", "*", "ab"})
	}
	anyone := func(t *rapid.T, what string) (w Who) {
		w = Who{SPIFFE: list(t, what+" uri"), Token: list(t, what+" token"), Nodes: list(t, what+" node"), Socket: rapid.Bool().Draw(t, what+" socket")}
		for _, cidr := range rapid.SliceOfN(rapid.SampledFrom([]string{"10.0.0.0/8", "10.1.0.0/16", "10.1.2.3/32", "::/0"}), 0, 2).Draw(t, what+" cidr") {
			w.CIDR = append(w.CIDR, netip.MustParsePrefix(cidr))
		}
		if rapid.Bool().Draw(t, what+" jwt") {
			w.JWT = &JWT{Issuer: list(t, what+" issuer"), Audience: list(t, what+" audience")}
		}
		return w
	}
	rapid.Check(t, func(t *rapid.T) {
		x, y := anyone(t, "x"), anyone(t, "y")
		require.True(t, x.Covers(&x))
		require.True(t, (&Who{}).Covers(&x))
		text := rapid.SampledFrom([]string{"a", "b", "ab", "aab"})
		i := &identity.Identity{
			URIs: rapid.SliceOfN(text, 0, 2).Draw(t, "uris"), Token: text.Draw(t, "token"), Socket: rapid.Bool().Draw(t, "socket"),
			Address: netip.MustParseAddr(rapid.SampledFrom([]string{"10.1.2.3", "10.2.0.1", "::1"}).Draw(t, "address")),
			JWT:     &identity.JWT{Issuer: text.Draw(t, "issuer"), Audience: rapid.SliceOfN(text, 0, 2).Draw(t, "audience")},
		}
		node := text.Draw(t, "node")
		ofX, _ := x.matches(i, &node)
		ofY, _ := y.matches(i, &node)
		if x.Covers(&y) && ofY {
			require.True(t, ofX)
		}
	})
}
