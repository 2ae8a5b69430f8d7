package extend

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pkg/proto/merge"

	"tributary/server/envoy/model"
)

// Cluster returns a cluster as the patches have it, and whether there is still one. services are the hosts of an inbound cluster, whose
// name has none.
func (p *Patcher) Cluster(c *clusterv3.Cluster, services ...string) (*clusterv3.Cluster, bool) {
	return apply(p, c, func(a *attempt, c *clusterv3.Cluster) bool {
		return len(change(a, []*clusterv3.Cluster{c}, target[*clusterv3.Cluster]{
			to: networking.EnvoyFilter_CLUSTER, merge: a.mergeCluster,
			matches: func(p *model.Patch, c *clusterv3.Cluster) bool { return matchesCluster(p, c, services) },
		}, changing)) > 0
	})
}

// mergeCluster merges into a cluster. If the patch has a transport socket, it is that alone, as with istiod.
func (a *attempt) mergeCluster(p *model.Patch, c *clusterv3.Cluster) {
	value := p.Value.(*clusterv3.Cluster)
	own, with := c.GetTransportSocket(), value.GetTransportSocket()
	if matches := c.GetTransportSocketMatches(); with != nil && len(matches) > 0 {
		i := slices.IndexFunc(matches, func(m *clusterv3.Cluster_TransportSocketMatch) bool {
			return m.GetTransportSocket().GetName() == with.GetName()
		})
		if i < 0 {
			return
		}
		own = matches[i].GetTransportSocket()
	}
	switch {
	case with == nil:
		merge.Merge(c, value)
	case own == nil || own.GetName() != with.GetName():
		c.TransportSocket = proto.CloneOf(with)
	case own.GetTypedConfig() != nil && with.GetTypedConfig() != nil:
		a.mergeConfig(p, own.GetTypedConfig(), with.GetTypedConfig())
		return
	}
	a.used[p] = true
}

func matchesCluster(p *model.Patch, c *clusterv3.Cluster, services []string) bool {
	m := p.Match.GetCluster()
	if m.GetName() != "" {
		return m.GetName() == c.GetName()
	}
	var parts [4]string // direction, port, subset, host
	if list := strings.Split(c.GetName(), "|"); len(list) == len(parts) {
		parts = [4]string(list)
	}
	if parts[0] != "inbound" || len(services) == 0 {
		services = []string{parts[3]}
	}
	return (m.GetSubset() == "" || m.GetSubset() == parts[2]) &&
		(m.GetService() == "" || slices.Contains(services, m.GetService())) &&
		(m.GetPortNumber() == 0 || strconv.FormatUint(uint64(m.GetPortNumber()), 10) == parts[1])
}

// Added returns the patches that add clusters and listeners in some contexts.
func Added(e *model.Extension, contexts []networking.EnvoyFilter_PatchContext, found *model.Findings) (all []*model.Patch) {
	if e == nil {
		return nil
	}
	names := make(map[string]bool)
	for _, p := range e.Patches {
		if p.Operation != networking.EnvoyFilter_Patch_ADD || !slices.ContainsFunc(contexts, p.In) ||
			p.ApplyTo != networking.EnvoyFilter_CLUSTER && p.ApplyTo != networking.EnvoyFilter_LISTENER {
			continue
		}
		own := p.Value.(named).GetName()
		name, why := p.ApplyTo.String()+" "+own, refused(p.Value, e.MaxProgram)
		switch {
		case why != "":
		case isOurs(own):
			why = own + " is a name, or of the form of the names, of what is made of other objects"
		case names[name]:
			why = "there is another " + name
		default:
			names[name] = true
			all = append(all, p)
			continue
		}
		found.Note(p.Place, "%s", why)
	}
	return all
}

// isOurs says whether a name is one that resources have which are made of other objects.
func isOurs(name string) bool {
	_, err := netip.ParseAddr(name[:max(strings.LastIndexByte(name, '_'), 0)])
	return err == nil || name == "" || name == model.BlackHole || name == model.Passthrough || strings.HasPrefix(name, "virtual") ||
		strings.HasPrefix(name, "outbound|") || strings.HasPrefix(name, "inbound|")
}
