package aggregate

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	networking "istio.io/api/networking/v1alpha3"
	"pgregory.net/rapid"

	"tributary/resource"
)

// TestMixedResolutions compares merged ServiceEntries of a host with different resolutions with golden files.
func TestMixedResolutions(t *testing.T) {
	const host = "reviews.shop.example"
	as := func(resolution networking.ServiceEntry_Resolution, port uint32, addresses ...string) *networking.ServiceEntry {
		se := serviceEntry(host, port)
		se.Resolution = resolution
		for _, a := range addresses {
			se.Endpoints = append(se.Endpoints, workload(a))
		}
		return se
	}
	const (
		static     = networking.ServiceEntry_STATIC
		dns        = networking.ServiceEntry_DNS
		robin      = networking.ServiceEntry_DNS_ROUND_ROBIN
		unresolved = networking.ServiceEntry_NONE
	)
	ofRank := func(rank int, m *member) *member {
		m.from.rank = rank
		return m
	}
	for name, entries := range map[string][]*networking.ServiceEntry{
		"the first has no endpoints":  {as(static, 80), as(dns, 80, "a.example"), as(static, 80, "10.0.0.1")},
		"the second has no endpoints": {as(dns, 80, "a.example"), as(static, 80)},
		"no entry has endpoints":      {as(static, 80), as(static, 80)},
		"addresses and names":         {as(static, 80, "10.0.0.1"), as(dns, 80, "a.example", "10.0.0.1")},
		"left to DNS":                 {as(dns, 80), as(static, 80, "10.0.0.1")},
		"left to DNS alone":           {as(dns, 80), as(static, 80)},
		"round robin":                 {as(robin, 80, "a.example"), as(robin, 80, "b.example")},
		"round robin of one":          {as(robin, 80, "a.example"), as(static, 80)},
		"an entry without endpoints has other ports": {
			changed(as(static, 80), func(se *networking.ServiceEntry) { se.Ports[0].Protocol = "TCP" }),
			as(static, 80, "10.0.0.1"),
		},
		"a passthrough entry":                       {as(unresolved, 80), as(static, 80, "10.0.0.1")},
		"other ports of the host are by DNS":        {as(static, 80, "10.0.0.1"), as(dns, 81, "a.example")},
		"another port of the host has no endpoints": {as(static, 80), as(dns, 81, "a.example")},
		"sockets beside names are not possible":     {as(static, 80, "unix:///run/a"), as(dns, 80, "a.example")},
	} {
		t.Run(name, func(t *testing.T) {
			var members []*member
			for i, se := range entries {
				members = append(members, ofRank(i, memberWith(t, string(rune('p'+i)), "reviews", Merge{}, se)))
			}
			golden(t, "resolution-"+dashed(name), divided(t, members))
		})
	}
}

// TestAnyValidEntries_MergeIntoValidOnes checks that any valid entries merge into valid ones; that each is merged, or
// refused with a reason, and only then lacks endpoints; and that none is refused that could be merged, nor because of
// one without endpoints.
func TestAnyValidEntries_MergeIntoValidOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hosts := rapid.SampledFrom([][]string{{"a.example"}, {"a.example"}, {"a.example", "b.example"}, {"*.example"}}).Draw(t, "hosts")
		var members []*member
		for i := range rapid.IntRange(1, 4).Draw(t, "number") {
			from := &contributor{name: fmt.Sprint("s", i), rank: i, merge: Merge{Priority: rapid.IntRange(0, 1).Draw(t, "priority")}}
			for j := range rapid.IntRange(0, 2).Draw(t, "entries") {
				res, err := resource.New(resource.Meta{Key: keyOf(fmt.Sprint("e", j))}, anyEntry(t, hosts))
				require.NoError(t, err)
				if _, err := resource.Validate(res); err == nil {
					members = append(members, &member{from: from, res: res, spec: decoded(res)})
				}
			}
		}
		if len(members) == 0 {
			return
		}
		heard := make(map[*member]int)
		services := joinMembers(groupKeyOf(members[0].res), members)
		for _, s := range services {
			merged := s.object()
			_, err := resource.Validate(merged)
			require.NoError(t, err, "%v", decoded(merged))
			for _, m := range s.members {
				heard[m]++
				s.checkEndpointsOf(t, m, decoded(merged))
			}
			for _, refusal := range s.refused {
				heard[refusal.member]++
				require.NotEmpty(t, refusal.reason)
				if idle(refusal.spec) {
					continue
				}
				require.False(t, slices.ContainsFunc(s.members, func(m *member) bool { return idle(m.spec) && len(s.members) == 1 }),
					"%v is refused because of an entry without endpoints", refusal.spec)
				apart := slices.ContainsFunc(s.members, func(m *member) bool { return !together(m.spec, refusal.spec) })
				require.True(t, apart, "%s: %v, which goes with all others", refusal.reason, refusal.spec)
			}
		}
		for _, m := range members {
			require.Equal(t, 1, heard[m], "%v", m.spec)
		}
		checkJoined(t, services)
	})
}

// checkEndpointsOf checks that the endpoints of a member of the service are served, unless others go first by priority.
func (m *mergedEntry) checkEndpointsOf(t *rapid.T, part *member, merged *networking.ServiceEntry) {
	first := 2
	for _, member := range m.members {
		if len(member.spec.Endpoints) > 0 || resolvesHost(member.spec) && hostOf(member.spec) != "" {
			first = min(first, member.from.merge.Priority)
		}
	}
	if part.from.merge.Priority > first {
		return
	}
	served := &member{spec: merged}
	identities := make(map[string]bool)
	for _, e := range served.endpoints() {
		identities[(&memberEndpoint{member: served, endpoint: e}).identity()] = true
	}
	for _, e := range part.endpoints() {
		identity := (&memberEndpoint{member: part, endpoint: e}).identity()
		require.True(t, identities[identity], "%v of %v is missing in %v", e, part.spec, merged)
	}
}

// together reports whether two entries can be merged: the model.
func together(a, b *networking.ServiceEntry) bool {
	plain := func(se *networking.ServiceEntry) bool {
		return se.WorkloadSelector == nil && se.Resolution != networking.ServiceEntry_NONE && excludesDNS(se) == "" &&
			(len(se.Endpoints) > 0 || len(se.Hosts) == 1 || idle(se))
	}
	return plain(a) && plain(b) && slices.Equal(portList(a), portList(b)) && a.Location == b.Location && slices.Equal(exports(a), exports(b))
}

// checkJoined checks that istiod can join all services that it would join if their resolution were the same.
func checkJoined(t *rapid.T, services []*mergedEntry) {
	for _, a := range services {
		for _, b := range services {
			if a.istiodMayJoin(b) && b.istiodMayJoin(a) &&
				a.resolution != networking.ServiceEntry_NONE && b.resolution != networking.ServiceEntry_NONE &&
				(a.resolution == networking.ServiceEntry_DNS || b.resolution == networking.ServiceEntry_DNS) && len(a.served) > 0 && len(b.served) > 0 {
				require.Equal(t, a.resolution, b.resolution)
			}
		}
	}
}

// anyEntry is an entry of some registry.
func anyEntry(t *rapid.T, hosts []string) *networking.ServiceEntry {
	se := &networking.ServiceEntry{
		Hosts:      hosts,
		Resolution: networking.ServiceEntry_Resolution(rapid.SampledFrom([]int32{0, 1, 1, 1, 2, 2, 2, 3}).Draw(t, "resolution")),
		Location:   networking.ServiceEntry_Location(rapid.SampledFrom([]int32{0, 0, 0, 1}).Draw(t, "location")),
		Addresses:  rapid.SampledFrom([][]string{nil, nil, {"240.0.0.1"}, {"10.1.0.0/16"}}).Draw(t, "addresses"),
		ExportTo:   rapid.SampledFrom([][]string{nil, nil, nil, {"."}}).Draw(t, "exportTo"),
	}
	for i, number := range rapid.SampledFrom([][]uint32{{80}, {80}, {80, 443}, {443}, {9090}}).Draw(t, "ports") {
		se.Ports = append(se.Ports, &networking.ServicePort{
			Number: number, Name: fmt.Sprint(rapid.SampledFrom([]string{"p", "q"}).Draw(t, "name"), i), Protocol: "HTTP",
			TargetPort: rapid.SampledFrom([]uint32{0, 0, 8080}).Draw(t, "target"),
		})
	}
	names := []string{"10.0.0.1", "10.0.0.2", "fd00::1"}
	if allowsNames(se) {
		names = append(names, "one.internal", "two.internal", "a.example")
	} else {
		names = append(names, "unix:///run/a")
	}
	for _, address := range rapid.SliceOfN(rapid.SampledFrom(names), 0, 3).Draw(t, "endpoints") {
		workloadEntry := workload(address)
		if number := rapid.SampledFrom([]uint32{0, 0, 8081}).Draw(t, "port"); number > 0 && address[0] != 'u' {
			workloadEntry.Ports = map[string]uint32{se.Ports[0].Name: cmp.Or(number, 1)}
		}
		se.Endpoints = append(se.Endpoints, workloadEntry)
	}
	if rapid.IntRange(0, 9).Draw(t, "selects") == 0 {
		se.Endpoints, se.WorkloadSelector = nil, &networking.WorkloadSelector{Labels: map[string]string{"app": "a"}}
	}
	return se
}

// One that selects workloads is not merged, and does not affect the others.
func TestEntryWithSelector_DoesNotBlockResolution(t *testing.T) {
	entry := func(port uint32, resolution networking.ServiceEntry_Resolution) *networking.ServiceEntry {
		se := serviceEntry("a.example", port)
		se.Resolution = resolution
		return se
	}
	selects := entry(80, networking.ServiceEntry_DNS)
	selects.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"app": "a"}}
	members := []*member{
		memberOf(t, "first", "e", selects),
		memberOf(t, "second", "addresses", withEndpoints(entry(443, networking.ServiceEntry_STATIC), workload("10.0.0.1"))),
		memberOf(t, "second", "names", entry(9090, networking.ServiceEntry_DNS)),
	}
	for _, s := range joinMembers(groupKeyOf(members[0].res), members) {
		require.Equal(t, networking.ServiceEntry_DNS, s.resolution, "%v", s.members[0].spec)
	}
}
