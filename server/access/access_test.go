package access

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	_ "tributary/internal/testutil" // of the property tests
	"tributary/resource"
	"tributary/server/identity"
	"tributary/server/xds"
)

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		glob, text string
		want       bool
	}{
		{"a", "a", true},
		{"a", "ab", false},
		{"a*", "ab", true},
		{"a*", "a", true},
		{"a*", "ba", false},
		{"*b", "ab", true},
		{"*b", "ba", false},
		{"*", "", true},
		{"", "", true},
		{"", "a", false},
	} {
		require.Equal(t, c.want, matches(c.glob, c.text), "%+v", c)
	}
	for _, bad := range []string{"a*b", "**", "*a*", "a**"} {
		require.Error(t, CheckPattern(SPIFFE, bad), bad)
	}
}

// TestSubjects compares subjects name by name: part of a value is no name.
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
		{"*,OU=b,*", "CN=a,OU=b,O=E,C=DE", true},
		{"*,OU=b,*", "CN=a,CN=c,OU=b,OU=b,O=E,C=DE", true},
		{"*,OU=b,*", "OU=b,O=E", false},
		{"*,OU=b,*", "CN=a,OU=b", false},
		{"CN=a,*,O=E", "CN=a,OU=b,OU=c,O=E", true},
		{"CN=a,*,O=E", "CN=a,O=E", false},
		{"*,O=E,*,O=E", "CN=a,O=E,O=E,C=DE,O=E", true},
		{"OU=*+CN=a", "CN=a+OU=b", true},
		{
			"emailAddress=a@b,UID=c,DC=d", "1.2.840.113549.1.9.1=#0c03614062,0.9.2342.19200300.100.1.1=#130163,0.9.2342.19200300.100.1.25=#160164",
			true,
		},
		{"2.5.4.3=a", "CN=a", true},
	} {
		require.Equal(t, c.want, matchSubject(c.pattern, c.subject), "%+v", c)
	}
	for _, good := range []string{
		"*", "CN=*", "*,O=E", "CN=a,*", `CN=a\*`, "CN=a,*,O=E", " cn = a , * ", `CN=a\2cb\,\ `, "CN=ö", "1.2.3=x",
		"CN=#130161",
	} {
		require.NoError(t, checkSubject(good), good)
	}
	for _, bad := range []string{
		"CN=a*", "CN=*a", "*O=E", "istiod", "CN=a*,O=E", "", "cn=", "CN=a,", "XY=a", "CN=a+CN=b", `CN=a\q`, `CN=a\`,
		`CN="a"`, "CN=a;O=E", "CN=#13", "CN=#zz",
	} {
		require.Error(t, checkSubject(bad), bad)
	}
	require.True(t, (Match{Subject: {"*,O=E"}}).Subsumes(Match{Subject: {"CN=a,O=E", "*,O=E"}}))
	require.False(t, (Match{Subject: {"*,O=E"}}).Subsumes(Match{Subject: {"CN=a,*"}}))
	require.False(t, (Match{Subject: {"CN=*,O=E"}}).Subsumes(Match{Subject: {"*,O=E"}}))
}

// TestMatch_CertificateSubjects has certificates that nearly match a pattern.
func TestMatch_CertificateSubjects(t *testing.T) {
	cn, c, o, ou := asn1.ObjectIdentifier{2, 5, 4, 3}, asn1.ObjectIdentifier{2, 5, 4, 6}, asn1.ObjectIdentifier{2, 5, 4, 10},
		asn1.ObjectIdentifier{2, 5, 4, 11}
	uid := asn1.ObjectIdentifier{0, 9, 2342, 19200300, 100, 1, 1}
	rdn := func(parts ...any) (s pkix.RelativeDistinguishedNameSET) {
		for part := range slices.Chunk(parts, 2) {
			s = append(s, pkix.AttributeTypeAndValue{Type: part[0].(asn1.ObjectIdentifier), Value: part[1]})
		}
		return s
	}
	for _, test := range []struct {
		about   string
		subject pkix.RDNSequence // the outermost first
		pattern string
		want    bool
	}{
		{"plain", pkix.RDNSequence{rdn(o, "Example"), rdn(cn, "istiod")}, "CN=istiod,O=Example", true},
		{"comma in CN", pkix.RDNSequence{rdn(o, "Evil"), rdn(cn, "x,O=Example")}, "*,O=Example", false},
		{"two CNs: neither decides alone", pkix.RDNSequence{rdn(o, "Example"), rdn(cn, "evil"), rdn(cn, "istiod")}, "CN=istiod,O=Example", false},
		{"two CNs, the other way", pkix.RDNSequence{rdn(o, "Example"), rdn(cn, "istiod"), rdn(cn, "evil")}, "CN=istiod,O=Example", false},
		{
			"CN within another's multi-valued RDN",
			pkix.RDNSequence{rdn(cn, "istiod", ou, "guests"), rdn(o, "Example")},
			"CN=istiod,OU=guests,O=Example", false,
		},
		{"two Os as two RDNs", pkix.RDNSequence{rdn(o, "Evil"), rdn(o, "Example"), rdn(cn, "istiod")}, "CN=istiod,O=Example", false},
		{"order: CN above O", pkix.RDNSequence{rdn(cn, "istiod"), rdn(o, "Example")}, "CN=istiod,O=Example", false},
		{"empty O", pkix.RDNSequence{rdn(o, ""), rdn(cn, "istiod")}, "CN=istiod,O=*", false},
		{"UID besides", pkix.RDNSequence{rdn(o, "Example"), rdn(uid, "evil"), rdn(cn, "istiod")}, "CN=istiod,O=Example", false},
		{"UID", pkix.RDNSequence{rdn(o, "Example"), rdn(uid, "web"), rdn(cn, "istiod")}, "CN=istiod,uid=web,O=Example", true},
		{"trailing blank", pkix.RDNSequence{rdn(o, "Example"), rdn(cn, "istiod ")}, "CN=istiod,O=Example", false},
		{"trailing blank, escaped", pkix.RDNSequence{rdn(o, "Example"), rdn(cn, "istiod  ")}, `CN=istiod \ ,O=Example`, true},
		{"plus in CN", pkix.RDNSequence{rdn(o, "Example"), rdn(cn, "a+OU=b")}, "CN=*,O=Example", true},
		{"multi-valued", pkix.RDNSequence{rdn(o, "Example"), rdn(cn, "a", ou, "b")}, "CN=*,O=Example", false},
		{"multi-valued, in any order", pkix.RDNSequence{rdn(o, "Example"), rdn(cn, "a", ou, "b")}, "OU=b + CN=a,O=Example", true},
		{"any before and behind", pkix.RDNSequence{rdn(c, "DE"), rdn(o, "Example"), rdn(ou, "guests"), rdn(cn, "x")}, "*,OU=guests,*", true},
		{"blank after a comma, as openssl prints it", pkix.RDNSequence{rdn(o, "Example"), rdn(cn, "istiod")}, "CN=istiod, O=Example", true},
		{"lower case type", pkix.RDNSequence{rdn(o, "Example"), rdn(cn, "istiod")}, "cn=istiod,o=Example", true},
		{"hex pair", pkix.RDNSequence{rdn(o, "A,B"), rdn(cn, "istiod")}, `CN=istiod,O=A\2CB`, true},
		{"hex pairs of UTF-8", pkix.RDNSequence{rdn(o, "é"), rdn(cn, "istiod")}, `CN=istiod,O=\c3\a9`, true},
		{"backslash star", pkix.RDNSequence{rdn(o, "Example"), rdn(cn, "a*")}, `CN=a\*,O=Example`, true},
		{"a star", pkix.RDNSequence{rdn(o, "Example"), rdn(cn, "*")}, `CN=istiod,O=Example`, false},
		{"a value that looks encoded", pkix.RDNSequence{rdn(cn, "#130161")}, "CN=a", false},
		{"no names", pkix.RDNSequence{}, "*", false},
	} {
		raw, err := asn1.Marshal(test.subject)
		require.NoError(t, err)
		leaf := &x509.Certificate{RawSubject: raw}
		state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}}}
		require.NoError(t, checkSubject(test.pattern), test.about)
		i := identity.FromConnection(nil, state)
		got := Rules{{Match: Match{Subject: {test.pattern}}}}.admit(i)
		require.Equal(t, test.want, got, "%s: pattern %s, subject %s", test.about, test.pattern, i.Subject)
	}
}

func TestMatch(t *testing.T) {
	from := func(ip string) *identity.Identity {
		return identity.FromConnection(&net.TCPAddr{IP: net.ParseIP(ip), Port: 1}, nil)
	}
	web := from("10.1.2.3")
	web.URIs = []string{"spiffe://cluster.local/ns/prod/sa/web"}
	web.Token, web.JWT = "ci", &identity.JWT{Issuer: "i", Subject: "web", Audience: []string{"a", "b"}}
	socket := identity.FromConnection(&net.UnixAddr{Net: "unix"}, nil)
	id := "sidecar~1"
	for _, c := range []struct {
		match Match
		i     *identity.Identity
		want  bool
	}{
		{Match{}, socket, true},
		{Match{Socket: {"*"}}, socket, true},
		{Match{Socket: {"*"}}, web, false},
		{Match{CIDR: {"0.0.0.0/0"}}, socket, false},
		{Match{CIDR: {"10.0.0.0/8"}}, web, true},
		{Match{CIDR: {"11.0.0.0/8"}}, web, false},
		{Match{SPIFFE: {"spiffe://cluster.local/ns/prod/*"}}, web, true},
		{Match{SPIFFE: {"*"}}, socket, false},
		{Match{Subject: {"*"}}, web, false},
		{Match{Token: {"*"}}, socket, false},
		{Match{Token: {"c*"}, JWTAudience: {"b"}}, web, true},
		{Match{Token: {"c*"}, JWTIssuer: {"j"}}, web, false},
		{Match{JWT: {"*"}}, socket, false},
		{Match{Token: {"ci"}, Node: {"sidecar~*"}}, web, true},
		{Match{Token: {"ci"}, Node: {"router~*"}}, web, false},
		{Match{Token: {"x"}, Node: {"sidecar~*"}}, web, false},
	} {
		require.Equal(t, c.want, Rules{{Match: c.match}}.Find(c.i, id) != nil, "%+v", c.match)
		delete(c.match, Node)
		require.Equal(t, Rules{{Match: c.match}}.Find(c.i, id) != nil, Rules{{Match: c.match}}.admit(c.i), "%+v", c.match)
	}
	rules := Rules{{Match: Match{Node: {"router~*"}}, Place: "1"}, {Match: Match{Token: {"ci"}}, Place: "2"}}
	require.Equal(t, "2", rules.Find(web, "").Place, "without a node ID")
	require.Equal(t, "1", rules.Find(web, "router~1").Place)
	require.True(t, rules.admit(socket), "its node ID decides")
	require.Nil(t, rules.Find(socket, ""))
	require.False(t, rules[1:].admit(socket))
	require.False(t, Rules{}.admit(web), "no rule admits a client")
	require.True(t, Rules(nil).admit(socket), "without access rules, each client is admitted")
}

func TestRights_ServicesNeedANamedRight(t *testing.T) {
	require.True(t, NewRights(Permissions{}).AllowsService(Channelz))
	a := NewRights(Permissions{Namespaces: []string{"a"}, Services: []string{Reflection}})
	require.True(t, a.AllowsService(Reflection))
	require.False(t, a.AllowsService(Channelz), "it shows the clients of all namespaces")
}

func TestRights_EnvoyTypes(t *testing.T) {
	for _, envoyType := range envoyTypes {
		name, url := envoyType[0], envoyType[1]
		rights := NewRights(Permissions{Types: []string{name}})
		for _, typeURL := range envoyTypes {
			require.Equal(t, typeURL[1] == url, rights.AllowsType(typeURL[1]))
		}
		require.False(t, rights.AllowsType(xds.RuntimeURL))
	}
	require.Len(t, envoyTypes, len(Types()))
	require.True(t, NewRights(Permissions{Kinds: []string{"ServiceEntry"}}).AllowsType(xds.RuntimeURL))
}

func TestRights_MergedObjectNeedsEachSource(t *testing.T) {
	rights := NewRights(Permissions{Sources: []string{"a", "b*"}})
	for source, want := range map[string]bool{"a": true, "a, b1": true, "a, c": false, "c": false} {
		require.Equal(t, want, rights.allowsKey(resource.Key{Kind: resource.ServiceEntry}, source), source)
	}
}

func texts(t *rapid.T, label string, from []string) []string {
	return rapid.SliceOfN(rapid.SampledFrom(from), 0, 3).Draw(t, label)
}

func anAllow(t *rapid.T, label string) Permissions {
	globs := []string{"*", "a*", "*b", "ab", "a", "b", ""}
	return Permissions{
		Kinds:      texts(t, label+" kinds", []string{"*", "Service*", "*Entry", "ServiceEntry", "WorkloadEntry", "VirtualService"}),
		Namespaces: texts(t, label+" namespaces", globs),
		Sources:    texts(t, label+" sources", globs), Types: texts(t, label+" types", []string{"*", "clusters", "c*", "routes"}),
		Services: texts(t, label+" services", []string{"*", "reflection", "channelz"}),
	}
}

// TestKey_EqualKeysGiveEqualRights: rights with equal keys allow the same objects, types and services.
func TestKey_EqualKeysGiveEqualRights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rights, y := NewRights(anAllow(t, "x")), NewRights(anAllow(t, "y"))
		differ := ""
		see := func(label string, x, y bool) {
			if y != x {
				differ = label
			}
		}
		for _, ns := range []string{"", "a", "b", "ab", "aab"} {
			for _, source := range []string{"a", "b", "ab", "a, b"} {
				for _, kind := range []resource.Kind{resource.ServiceEntry, resource.WorkloadEntry, resource.VirtualService, resource.Gateway} {
					sees := func(a *Rights) bool {
						return a.allowsKey(resource.Key{Kind: kind, Namespace: ns, Name: "x"}, source)
					}
					see(fmt.Sprint(kind, ns, source), sees(rights), sees(y))
					require.Equal(t, sees(rights), sees(rights.Objects()))
				}
			}
		}
		for _, envoyType := range envoyTypes {
			url := envoyType[1]
			see(url, rights.AllowsType(url), y.AllowsType(url))
		}
		for _, name := range Services() {
			see(name, rights.AllowsService(name), y.AllowsService(name))
		}
		if rights.Key() == y.Key() {
			require.Empty(t, differ)
		}
	})
}

// TestPolicy_DuringReload: while the sources change, only clients with the same rights by the rules before and after
// are served.
func TestPolicy_DuringReload(t *testing.T) {
	prod, wider := NewRights(Permissions{Namespaces: []string{"prod"}}), NewRights(Permissions{Namespaces: []string{"prod", "test"}})
	rules := func(rights *Rights) Rules { return Rules{{Match: Match{Node: {"web"}}, Rights: rights}} }
	for name, c := range map[string]struct {
		previous, next Rules
		want           error
	}{
		"same rights":            {rules(prod), rules(NewRights(Permissions{Namespaces: []string{"prod"}})), nil},
		"more":                   {rules(prod), rules(wider), errRightsChanged},
		"less":                   {rules(wider), rules(prod), errRightsChanged},
		"everything before":      {nil, rules(prod), errRightsChanged},
		"everything afterwards":  {rules(prod), nil, errRightsChanged},
		"everything by no rules": {nil, rules(nil), nil},
		"none before":            {Rules{}, rules(prod), errRightsChanged},
	} {
		web := "web"
		rights, err := (&Policy{Rules: c.next, Previous: &c.previous}).rights(&identity.Identity{}, web)
		require.ErrorIs(t, err, c.want, name)
		if c.want == nil {
			require.Equal(t, c.next.rightsOf(t, web), rights.Key(), name)
		}
	}
	web := "web"
	_, err := (&Policy{Rules: Rules{}, Previous: &Rules{}}).rights(&identity.Identity{}, web)
	require.Equal(t, codes.PermissionDenied, status.Code(err), "no rights before and after")
}

// rightsOf returns the key of the rights of a client.
func (rules Rules) rightsOf(t *testing.T, node string) string {
	t.Helper()
	rights, err := rules.rights(&identity.Identity{}, node)
	require.NoError(t, err)
	return rights.Key()
}

// TestMatch_Subsumes: a rule after one that subsumes it decides no client.
func TestMatch_Subsumes(t *testing.T) {
	list := func(t *rapid.T, label string) []string {
		return texts(t, label, []string{"a", "b", "a*", "*b", "*", "ab"})
	}
	anyone := func(t *rapid.T, label string) (w Match) {
		w = Match{SPIFFE: list(t, label+" uri"), Token: list(t, label+" token"), Node: list(t, label+" node")}
		w[CIDR] = rapid.SliceOfN(rapid.SampledFrom([]string{"10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "::/0"}), 0, 2).Draw(t, label+" cidr")
		if rapid.Bool().Draw(t, label+" socket") {
			w[Socket] = []string{"*"}
		}
		if rapid.Bool().Draw(t, label+" jwt") {
			w[JWT], w[JWTIssuer], w[JWTAudience] = []string{"*"}, list(t, label+" issuer"), list(t, label+" audience")
		}
		return w
	}
	require.False(t, Match{SPIFFE: {"a*"}}.Subsumes(Match{SPIFFE: {"ab", "b"}}), "it matches a part")
	rapid.Check(t, func(t *rapid.T) {
		match, y := anyone(t, "x"), anyone(t, "y")
		require.True(t, match.Subsumes(match))
		require.True(t, Match{}.Subsumes(match))
		text := rapid.SampledFrom([]string{"a", "b", "ab", "aab"})
		i := &identity.Identity{
			URIs: rapid.SliceOfN(text, 0, 2).Draw(t, "uris"), Token: text.Draw(t, "token"), Socket: rapid.Bool().Draw(t, "socket"),
			Address: netip.MustParseAddr(rapid.SampledFrom([]string{"10.1.2.3", "10.2.0.1", "::1"}).Draw(t, "address")),
			JWT:     &identity.JWT{Issuer: text.Draw(t, "issuer"), Audience: rapid.SliceOfN(text, 0, 2).Draw(t, "audience")},
		}
		node := text.Draw(t, "node")
		matchesX, matchesY := Rules{{Match: match}}.Find(i, node) != nil, Rules{{Match: y}}.Find(i, node) != nil
		if match.Subsumes(y) && matchesY {
			require.True(t, matchesX)
		}
	})
}

func TestCheck_AsksForAudience(t *testing.T) {
	rules := Rules{
		{
			Match: Match{JWTIssuer: {"https://i"}, JWTAudience: {"mesh*"}}, Place: "access[0]",
			Rights: NewRights(Permissions{Namespaces: []string{"shop"}}),
		},
		{Match: Match{JWTIssuer: {"https://i"}}, Place: "access[1]", Rights: NewRights(Permissions{})},
	}
	for proofs, want := range map[string]string{
		"jwt:https://i|ci": "not known: the audience of the token decides whether access[0] applies: " +
			"give it as audience:NAME, too",
		"jwt:https://i|ci audience:mesh-1":                `not allowed: access[0] decides, which does not have namespace "prod"`,
		"audience:mesh-1 jwt:https://i|ci audience:other": `not allowed: access[0] decides, which does not have namespace "prod"`,
		"jwt:https://i|ci audience:other":                 "allowed by access[1]",
		"jwt:https://elsewhere":                           "not allowed: no rule is for jwt:https://elsewhere|",
		"jwt:https://elsewhere|auth0|5f":                  "not allowed: no rule is for jwt:https://elsewhere|auth0|5f",
	} {
		client, err := identity.Parse(strings.Fields(proofs))
		require.NoError(t, err)
		_, explanation := rules.Check(Query{Client: client, Content: map[string]string{"namespace": "prod"}})
		require.Equal(t, want, explanation, proofs)
	}
}
