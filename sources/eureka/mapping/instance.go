package mapping

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"istio.io/istio/pkg/config/protocol"

	"tributary/internal/names"
	"tributary/sources/eureka/wire"
	"tributary/sources/presence"
	"tributary/sources/registry"
)

// InstanceOf returns a short name for an instance: letters, digits, dashes and underscores. No other instance can get
// the same name.
func InstanceOf(key wire.Key) string {
	sum := sha256.Sum256([]byte(key.App + "\x00" + key.ID))
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// Offers returns the offers of an instance, served or not, and warnings. The error says why the instance cannot be
// called at all.
func (m *Mapper) Offers(instance wire.Instance) (offers []registry.Offer[ID], warnings []string, err error) {
	address, warnings, err := m.addressOf(instance)
	if err != nil {
		return nil, nil, err
	}
	offer := registry.Offer[ID]{Owner: instance.App, State: presence.Listed, Endpoint: registry.Endpoint{
		Address: address, Locality: m.localityOf(instance), Instance: InstanceOf(instance.Key),
		Labels: m.options.Labels(instance.Metadata),
	}}
	if !m.Serves(instance) {
		offer.State, offer.Why = presence.Disabled, "status "+instance.Status
		if instance.Overridden != wire.Unknown && instance.Overridden != instance.Status {
			offer.Why += ", set to " + instance.Overridden
		}
	}
	add := func(port wire.Port, list string, secure bool, wanted uint32) {
		if !port.Enabled {
			return
		}
		addresses, invalid := parseVIPs(list, instance.App)
		warnings = append(warnings, invalid...)
		for _, vip := range addresses {
			offer.ID = m.idOf(vip.name, instance.App)
			offer.ID.Secure, offer.Endpoint.Port = secure, uint32(port.Number) //nolint:gosec // up to 65535
			offer.Port = cmp.Or(wanted, vip.port)
			// Two virtual addresses may be one host.
			if !slices.ContainsFunc(offers, func(earlier registry.Offer[ID]) bool { return earlier.ID == offer.ID }) {
				offers = append(offers, offer)
			}
		}
	}
	offer.Protocol = m.options.Protocol(instance.Metadata[m.options.ProtocolMeta])
	add(instance.Port, instance.VIP, false, m.options.WantedPort(instance.Metadata))
	offer.Protocol = string(protocol.HTTPS)
	add(instance.SecurePort, instance.SecureVIP, true, 0)
	if len(offers) == 0 {
		return nil, warnings, fmt.Errorf("none of its ports is enabled")
	}
	return offers, warnings, nil
}

// Groups returns the groups of the hosts of an instance, even if the instance cannot be called.
func (m *Mapper) Groups(instance wire.Instance) (groups []string) {
	for _, list := range []string{instance.VIP, instance.SecureVIP} {
		addresses, _ := parseVIPs(list, instance.App)
		for _, vip := range addresses {
			if group := m.idOf(vip.name, instance.App).Group(); !slices.Contains(groups, group) {
				groups = append(groups, group)
			}
		}
	}
	return groups
}

// Serves reports whether an instance may be called. Servers apply overrides to the status; an override to an instance
// that is out of service counts even before that.
func (m *Mapper) Serves(instance wire.Instance) bool {
	serves := func(status string) bool { return slices.Contains(m.options.Statuses, status) }
	disabled := instance.Overridden == wire.Down || instance.Overridden == wire.OutOfService
	return serves(instance.Status) && (!disabled || serves(instance.Overridden))
}

func (m *Mapper) idOf(vip, application string) (id ID) {
	if strings.Contains(m.options.HostTemplate, "{vip}") {
		id.VIP = vip
	}
	if strings.Contains(m.options.HostTemplate, "{app}") {
		id.App = strings.ToLower(application)
	}
	return id
}

// addressOf returns the address of an instance: the preferred one, or else the other one, with a warning if the
// preferred one is invalid.
func (m *Mapper) addressOf(instance wire.Instance) (address string, warnings []string, err error) {
	preferred, alternative := instance.IP, instance.HostName
	if m.options.AddressFrom == fromHostName {
		preferred, alternative = alternative, preferred
	}
	if address, err = names.Address(preferred); err == nil {
		return address, nil, nil
	}
	err = fmt.Errorf("address %q: %w", preferred, err)
	fallback, failure := names.Address(alternative)
	if failure != nil {
		return "", nil, err
	}
	if preferred != "" {
		warnings = []string{fmt.Sprintf("%v: it is called at %s instead", err, fallback)}
	}
	return fallback, warnings, nil
}

// maxVIPs bounds the virtual addresses of an instance.
const maxVIPs = 32

type virtualAddress struct {
	name string
	port uint32 // 0 if there is none
}

// parseVIPs reads a list of virtual addresses, in any case, some with a port. Without a valid one, it returns the name
// of the application.
func parseVIPs(list, application string) (addresses []virtualAddress, warnings []string) {
	for text := range strings.SplitSeq(list, ",") {
		text = strings.ToLower(strings.TrimSpace(text))
		if text == "" {
			continue
		}
		if strings.Contains(text, "${") {
			const unfilled = "virtual address %q has a placeholder that its client did not fill in"
			warnings = append(warnings, fmt.Sprintf(unfilled, text))
			continue
		}
		parsed := virtualAddress{name: text}
		if host, port, err := net.SplitHostPort(text); err == nil && host != "" && registry.ParsePort(port) != 0 {
			parsed = virtualAddress{host, registry.ParsePort(port)}
		}
		if slices.ContainsFunc(addresses, func(earlier virtualAddress) bool { return earlier.name == parsed.name }) {
			continue
		}
		if len(addresses) == maxVIPs {
			return addresses, append(warnings, fmt.Sprintf("it has more than %d virtual addresses", maxVIPs))
		}
		addresses = append(addresses, parsed)
	}
	if len(addresses) == 0 {
		addresses = []virtualAddress{{name: strings.ToLower(application)}}
	}
	return addresses, warnings
}

// amazonZone matches a zone that contains the name of its region.
var amazonZone = regexp.MustCompile(`^([a-z]+(?:-[a-z]+)+-[0-9]+)[a-z]$`)

// localityOf returns region/zone. A zone without a region is the first part.
func (m *Mapper) localityOf(instance wire.Instance) string {
	label := func(texts ...string) string {
		return cmp.Or(slices.DeleteFunc(texts, func(text string) bool { return !names.IsLabelText(text) })...)
	}
	region, zone := label(instance.Metadata["region"]), label(instance.Metadata["zone"], instance.DataCenterZone)
	if zone == "" {
		return region
	}
	if amazon := amazonZone.FindStringSubmatch(zone); region == "" && amazon != nil {
		region = amazon[1]
	}
	if region = cmp.Or(region, m.options.Region); region == "" {
		return zone
	}
	return region + "/" + zone
}
