package envoy

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"

	networking "istio.io/api/networking/v1alpha3"

	"tributary/resource"
)

// key is equal for views that are equal, and for no others, whatever clients and objects say: each part stands behind its length.
type key [sha256.Size]byte

// digest puts a key, or a part of one, together. The zero value is empty.
type digest []byte

func (d *digest) text(parts ...string) {
	for _, p := range parts {
		*d = append(binary.AppendUvarint(*d, uint64(len(p))), p...)
	}
}

func (d *digest) number(n int64) { *d = binary.AppendVarint(*d, n) }

func (d *digest) flag(is bool) { d.text(strconv.FormatBool(is)) }

func (d *digest) object(key resource.Key) { d.text(string(key.Kind), key.Namespace, key.Name) }

// key returns what tells the view from others. It has all of the view that a translation can read.
func (v *view) key() key {
	var d digest
	d.text(v.host)
	d.client(&v.client)
	d.flag(v.service != nil)
	if v.service != nil {
		d.text(v.service.from)
	}
	d.policy(&v.policy)
	d.number(int64(len(v.rules)))
	for _, part := range slices.Sorted(maps.Keys(v.rules)) {
		d.number(int64(part))
		d.rule(v.rules[part])
	}
	d.rule(v.own)
	d.number(int64(len(v.targets)))
	for _, host := range slices.Sorted(maps.Keys(v.targets)) {
		d.target(host, v.targets[host])
	}
	d.number(int64(len(v.servers)))
	for _, s := range v.servers {
		d.object(s.gateway.key)
		d.text(s.gateway.version, s.place.field)
	}
	d.number(int64(len(v.bound)))
	for _, r := range v.bound {
		d.rule(r)
	}
	if d.flag(v.seen != nil); v.seen != nil {
		d.text(v.seen.from)
	}
	d.number(int64(len(v.objects)))
	for _, of := range v.objects {
		d.object(of)
	}
	d.number(int64(len(v.findings)))
	for _, f := range v.findings {
		d.object(f.of)
		d.text(f.field, f.why)
	}
	return sha256.Sum256(d)
}

func (d *digest) client(p *profile) {
	d.number(int64(p.role))
	d.flag(p.captures)
	d.flag(p.labelled)
	d.flag(p.onDemand)
	d.flag(p.large)
	d.text(p.namespace, p.labels, p.place.region, p.place.zone, p.place.subZone, p.credentials)
}

// port adds what a Sidecar says of a port of a service. The rest is said by what the service is made of.
func (d *digest) port(p *port) {
	d.number(int64(p.number))
	d.flag(p.unreached)
	d.flag(p.late)
	d.number(int64(p.part))
	d.number(int64(p.spoken))
	d.text(p.bind)
}

func (d *digest) policy(p *policy) { d.text(p.namespace, p.name, p.from) }

func (d *digest) rule(r *rule[*networking.VirtualService]) {
	if d.flag(r != nil); r != nil {
		d.object(r.key)
		d.text(r.version)
	}
}

func (d *digest) target(host string, t target) {
	d.text(host)
	d.number(int64(len(t.ports)))
	for _, port := range t.ports {
		d.number(int64(port))
	}
	d.policy(&t.policy)
}

// narrow leaves of the view's client what bears on the view: those who differ in something else share what is made of it.
func (v *view) narrow(p profile) {
	v.client = profile{role: p.role, captures: p.captures}
	reads := make(labels)
	readsLabels := reads.policy(&v.policy)
	for _, r := range v.allRules() {
		v.client.large = p.large
		v.client.onDemand = p.onDemand // routes that lead nowhere
		reads.routes(r.spec)
		if tellsApart(r.spec) {
			v.client.namespace = p.namespace
		}
	}
	v.client.labels = p.labelsOf(reads)
	v.client.labelled = p.labelled && readsLabels
	if dependsOnPlace(&v.policy) {
		v.client.place = p.place
	}
	if p.role == ingress {
		v.client.namespace = p.namespace // to which VirtualServices are visible
	}
	if p.role == ingress || v.policy.traffic != nil || len(v.policy.subsets) > 0 {
		v.client.credentials = p.credentials
	}
}

// allRules returns the VirtualServices of the view.
func (v *view) allRules() []*rule[*networking.VirtualService] {
	all := slices.Clone(v.bound)
	for _, r := range v.rules {
		all = append(all, r)
	}
	if v.own != nil {
		all = append(all, v.own)
	}
	return all
}

// close makes the view complete, for clients of a profile.
func (v *view) close(p profile) *view {
	slices.SortFunc(v.objects, resource.Key.Compare)
	v.objects = slices.Compact(v.objects)
	v.narrow(p)
	return v
}
