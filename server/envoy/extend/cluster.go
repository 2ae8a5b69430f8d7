package extend

import (
	"net/netip"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/server/envoy/model"
)

// Cluster returns a cluster as the patches have it, and whether there is still one. services are the hosts of an inbound cluster, whose
// name has none.
func (p *Patcher) Cluster(c *clusterv3.Cluster, services ...string) (*clusterv3.Cluster, bool) {
	return apply(p, c, ToClusters, func(s *step, c *clusterv3.Cluster) (keep bool) {
		switch {
		case !s.matchesCluster(c, services):
		case s.Operation == networking.EnvoyFilter_Patch_REMOVE:
			s.used = true
			return false
		default:
			s.mergeCluster(c)
		}
		return true
	})
}

// mergeCluster merges into a cluster. If the patch has a transport socket, it is that alone, as with istiod.
func (s *step) mergeCluster(c *clusterv3.Cluster) {
	own, with := c.GetTransportSocket(), s.Value.(*clusterv3.Cluster).GetTransportSocket()
	if with == nil {
		s.merge(c)
		return
	}
	if matches := c.GetTransportSocketMatches(); len(matches) > 0 {
		i := slices.IndexFunc(matches, func(m *clusterv3.Cluster_TransportSocketMatch) bool {
			return m.GetTransportSocket().GetName() == with.GetName()
		})
		if i < 0 {
			return
		}
		own = matches[i].GetTransportSocket()
	}
	if !s.mergeSocket(own, with) {
		c.TransportSocket, s.used = proto.CloneOf(with), true
	}
}

func (s *step) matchesCluster(c *clusterv3.Cluster, services []string) bool {
	m := s.Match.GetCluster()
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
	return is(m.GetSubset(), parts[2]) && (m.GetService() == "" || slices.Contains(services, m.GetService())) &&
		(m.GetPortNumber() == 0 || model.RouteName(m.GetPortNumber()) == parts[1])
}

// Added returns the clusters and listeners that patches add for clients of a role, and adds to found as New says.
func Added(e *model.Extension, role model.Role, found *model.Findings) (all []proto.Message) {
	if e == nil {
		return nil
	}
	names := make(map[string]bool)
	for _, p := range inPhases(e.Patches, added) {
		if !p.In(ContextOf(role)) && (role != model.Sidecar || !p.In(networking.EnvoyFilter_SIDECAR_INBOUND)) {
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
			all = append(all, p.Value)
			found.Applied(p.Place)
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
