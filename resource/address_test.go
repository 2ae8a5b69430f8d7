package resource

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An address with a zone is refused wherever an object may have an address; one without is not.
func TestZonedAddress_Refused(t *testing.T) {
	for field, doc := range map[string]struct{ kind, spec string }{
		"spec.addresses[0]": {
			"ServiceEntry",
			`{hosts: [a.example], addresses: ["ADDRESS"], ports: [{number: 80, name: tcp, protocol: TCP}], resolution: STATIC, endpoints: ` +
				`[{address: 10.0.0.1}]}`,
		},
		"spec.endpoints[1].address": {
			"ServiceEntry",
			`{hosts: [a.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: 10.0.0.1}, ` +
				`{address: "ADDRESS"}]}`,
		},
		"spec.address":          {"WorkloadEntry", `{address: "ADDRESS"}`},
		"spec.template.address": {"WorkloadGroup", `{template: {address: "ADDRESS"}}`},
		"spec.servers[0].bind": {
			"Gateway",
			`{servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"], bind: "ADDRESS"}]}`,
		},
		"spec.egress[0].bind": {
			"Sidecar",
			`{egress: [{bind: "ADDRESS", port: {number: 80, name: http, protocol: HTTP}, hosts: ["*/*"]}]}`,
		},
		"spec.ingress[0].bind": {
			"Sidecar",
			`{workloadSelector: {labels: {a: b}}, ingress: [{bind: "ADDRESS", port: {number: 80, name: http, protocol: HTTP}, defaultEndpoint: ` +
				`"127.0.0.1:80"}]}`,
		},
		"spec.tcp[0].match[0].destinationSubnets[0]": {
			"VirtualService",
			`{hosts: [a.example], tcp: [{match: [{destinationSubnets: ["ADDRESS"]}], route: [{destination: {host: a.example}}]}]}`,
		},
		"spec.tls[0].match[0].destinationSubnets[0]": {
			"VirtualService",
			`{hosts: [a.example], tls: [{match: [{sniHosts: [a.example], destinationSubnets: ["ADDRESS"]}], route: [{destination: {host: ` +
				`a.example}}]}]}`,
		},
	} {
		validated := func(address string) error {
			schema, _ := SchemaOf(Kind(doc.kind))
			docs := Decode("x.yaml", []byte("apiVersion: "+schema.APIVersion()+"\nkind: "+doc.kind+"\nmetadata: {name: a}\nspec: "+
				strings.ReplaceAll(doc.spec, "ADDRESS", address)+"\n"), Options{})
			require.NoError(t, docs[0].Errors.Err(), field)
			_, err := Validate(docs[0].Resource)
			return err
		}
		err := validated("fe80::1%eth0")
		require.ErrorContains(t, err, field+`: "fe80::1%eth0" has a zone`, field)
		_, lenient := Lenient(nil, err)
		require.ErrorContains(t, lenient, field, "it is no rule of Istio's that may be waived")
		require.NoError(t, validated("fd00::1"), field)
	}
	require.True(t, IsAddress("fe80::1"))
	require.False(t, IsAddress("fe80::1%eth0"))
	require.False(t, IsAddress("a.example"))
}
