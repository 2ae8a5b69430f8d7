package model

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/types/known/durationpb"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// Envoy refuses all routes of a port, or a cluster, for one value in it that breaks a rule of its API. What is made is held to these rules,
// which are generated from the API, and what breaks one is left out and named.

// Refused says why Envoy would refuse a message, or returns nothing.
func Refused(m interface{ Validate() error }) string {
	if err := m.Validate(); err != nil {
		return "Envoy would refuse it: " + err.Error()
	}
	return ""
}

// MaxServerName is how long the name may be for which a TLS connection asks.
const MaxServerName = 255

// ServerName returns the name for which connections to a cluster ask, or nothing if it is none.
func ServerName(tls *networking.ClientTLSSettings) string {
	if len(tls.GetSni()) > MaxServerName {
		return ""
	}
	return tls.GetSni()
}

// MaxDuration is the longest that Envoy takes: a second less than what fits a number of nanoseconds, 292 years.
const MaxDuration = time.Duration(math.MaxInt64/int64(time.Second)-1) * time.Second

// Shortened returns a duration, or the longest one that Envoy takes.
func Shortened(d *durationpb.Duration) *durationpb.Duration {
	if d.GetSeconds() > int64(MaxDuration/time.Second) {
		return durationpb.New(MaxDuration)
	}
	return d
}

// PlaceOf is the place of the rule that a port's cluster is made by, or else of the port.
func (v *View) PlaceOf(p *Port) Place {
	if v.Policy.Name == "" {
		return p.Place()
	}
	return Place{resource.Key{Kind: resource.DestinationRule, Namespace: v.Policy.Namespace, Name: v.Policy.Name}, "spec"}
}

// Fit makes the weights of clusters smaller, in proportion, until their sum has 32 bits.
func Fit(clusters []*routev3.WeightedCluster_ClusterWeight) {
	for {
		sum := uint64(0)
		for _, c := range clusters {
			sum += uint64(c.GetWeight().GetValue())
		}
		if sum <= math.MaxUint32 {
			return
		}
		for _, c := range clusters {
			c.Weight.Value = max(c.GetWeight().GetValue()/2, 1)
		}
	}
}

// OneSpelling returns addresses, or ranges of them, each once and in the form that Envoy compares: several texts are one IPv6 address.
// Those with a zone, which Envoy rejects, are left out.
func OneSpelling(addresses []string) []string {
	all := make([]string, 0, len(addresses))
	for _, a := range addresses {
		if a = AddressOf(a); !slices.Contains(all, a) && !strings.Contains(a, "%") {
			all = append(all, a)
		}
	}
	return all
}

// AddressOf returns an address in one form, and anything else as it is.
func AddressOf(text string) string {
	if a, err := netip.ParseAddr(text); err == nil {
		return a.String()
	}
	return text
}
