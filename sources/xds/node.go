package xds

import (
	"cmp"
	"os"
	"regexp"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// The keys of node metadata.
const (
	metadataGenerator = "GENERATOR"      // what istiod is to send: "api" for objects, not Envoy's configuration
	metadataRevision  = "ISTIO_REVISION" // leaves out what is labelled for other revisions
)

// node introduces the source.
func (s *Source) node() *corev3.Node {
	fields := map[string]*structpb.Value{metadataGenerator: structpb.NewStringValue("api")}
	if s.settings.Revision != "" {
		fields[metadataRevision] = structpb.NewStringValue(s.settings.Revision)
	}
	for k, v := range s.settings.NodeMetadata {
		fields[k] = structpb.NewStringValue(v)
	}
	n := &corev3.Node{
		Id:            cmp.Or(s.settings.NodeID, defaultNodeID()),
		UserAgentName: "tributary",
		Metadata:      &structpb.Struct{Fields: fields},
	}
	if s.settings.Locality != "" {
		parts := append(strings.Split(s.settings.Locality, "/"), "", "")
		n.Locality = &corev3.Locality{Region: parts[0], Zone: parts[1], SubZone: parts[2]}
	}
	return n
}

var notInLabel = regexp.MustCompile(`[^a-z0-9-]+`)

// defaultNodeID has the form that istiod insists on: type, IP address, name and namespace, and domain.
func defaultNodeID() string {
	host, _ := os.Hostname() // a machine without a name is a nameless one
	host = strings.Trim(notInLabel.ReplaceAllString(strings.ToLower(host), "-"), "-")
	return "sidecar~127.0.0.1~" + strings.TrimSuffix("tributary-"+host, "-") + ".default~default.svc.cluster.local"
}
