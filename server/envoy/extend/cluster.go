package extend

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// Cluster returns a cluster as the patches have it, and whether there is still one. services are the hosts of an inbound cluster, whose
// name has none.
func (p *Patcher) Cluster(c *clusterv3.Cluster, services ...string) (*clusterv3.Cluster, bool) {
	return apply(p, c, func(a *attempt, c *clusterv3.Cluster) bool {
		for patch := range a.to(networking.EnvoyFilter_CLUSTER) {
			if patch.Operation == networking.EnvoyFilter_Patch_ADD || !matchesCluster(patch, c, services) {
				continue
			}
			if a.used[patch] = true; patch.Operation == networking.EnvoyFilter_Patch_REMOVE {
				return false
			}
			mergeCluster(a, patch, c)
		}
		return true
	}, refusedCluster)
}

// mergeCluster merges the value of a patch into a cluster. If it has a transport socket, it is that alone, as with istiod.
func mergeCluster(a *attempt, patch *model.Patch, c *clusterv3.Cluster) {
	value := patch.Value.(*clusterv3.Cluster)
	with := value.GetTransportSocket()
	if with == nil {
		merge(c, value)
		return
	}
	own := c.GetTransportSocket()
	if matches := c.GetTransportSocketMatches(); len(matches) > 0 {
		i := slices.IndexFunc(matches, func(m *clusterv3.Cluster_TransportSocketMatch) bool {
			return m.GetTransportSocket().GetName() == with.GetName()
		})
		if i < 0 {
			delete(a.used, patch)
			return
		}
		own = matches[i].GetTransportSocket()
	}
	if own.GetName() != with.GetName() || own == nil {
		c.TransportSocket = proto.CloneOf(with)
		return
	}
	if own.GetTypedConfig() != nil && with.GetTypedConfig() != nil {
		if config := mergeConfig(a, patch, own.GetTypedConfig(), with.GetTypedConfig()); config != nil {
			own.ConfigType = &corev3.TransportSocket_TypedConfig{TypedConfig: config}
		}
	}
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
func Added(e *model.Extension, contexts []networking.EnvoyFilter_PatchContext, regex regexCheck, found *model.Findings,
) (all []*model.Patch) {
	if e == nil {
		return nil
	}
	names := make(map[string]bool)
	for _, p := range e.Patches {
		if p.Operation != networking.EnvoyFilter_Patch_ADD || !slices.ContainsFunc(contexts, p.In) ||
			p.ApplyTo != networking.EnvoyFilter_CLUSTER && p.ApplyTo != networking.EnvoyFilter_LISTENER {
			continue
		}
		named, _ := p.Value.(interface{ GetName() string })
		name := p.ApplyTo.String() + " " + named.GetName()
		switch why := refused(p.Value, regex); {
		case why != "":
			found.Note(p.Place, "%s", why)
		case isOurs(named.GetName()):
			found.Note(p.Place, "%s is a name, or of the form of the names, of what is made of other objects", named.GetName())
		case names[name]:
			found.Note(p.Place, "there is another %s", name)
		default:
			names[name] = true
			all = append(all, p)
		}
	}
	return all
}

// isOurs says whether a name is one that resources have which are made of other objects.
func isOurs(name string) bool {
	if name == "" || name == model.BlackHole || name == model.Passthrough || strings.HasPrefix(name, "virtual") ||
		strings.HasPrefix(name, "outbound|") || strings.HasPrefix(name, "inbound|") {
		return true
	}
	i := strings.LastIndexByte(name, '_')
	_, err := netip.ParseAddr(name[:max(i, 0)])
	return err == nil
}
