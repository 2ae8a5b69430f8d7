package engine

import (
	"fmt"
	"hash/fnv"
	"strings"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"google.golang.org/protobuf/encoding/protowire"
)

// TypeURL is the served type: its SotW responses are always the full state, as those of Istio's kinds are.
const TypeURL = "type.googleapis.com/envoy.config.cluster.v3.Cluster"

// BodySize is the encoded size of every resource in bytes, without its name and version in the response.
const BodySize = 600

// Item is one resource as the i-th of a set was left by a change.
type Item struct {
	Name    string
	Version string
	// Any is the encoded google.protobuf.Any of the resource.
	Any []byte

	text string
}

// Name returns the name of the i-th resource.
func Name(i int) string { return fmt.Sprintf("cluster-%06d.mesh.internal", i) }

// Marker returns the text that only the resources of a change contain. It may stand in a host name.
func Marker(change int) string { return fmt.Sprintf("change-%010d", change) }

// The Cluster's two fields that are set: name and alt_stat_name.
const (
	clusterName    protowire.Number = 1
	clusterAltName protowire.Number = 28
)

// NewItem returns the i-th resource as of a change.
func NewItem(i, change int) Item {
	name := Name(i)
	marker := Marker(change)
	body := make([]byte, 0, BodySize)
	body = protowire.AppendTag(body, clusterName, protowire.BytesType)
	body = protowire.AppendString(body, name)
	body = protowire.AppendTag(body, clusterAltName, protowire.BytesType)
	// The rest, less the two bytes of its own length.
	text := marker + strings.Repeat("x", BodySize-len(body)-2-len(marker))
	body = protowire.AppendString(body, text)

	hash := fnv.New128a()
	hash.Write(body)

	packed := make([]byte, 0, len(TypeURL)+len(body)+8)
	packed = protowire.AppendTag(packed, 1, protowire.BytesType)
	packed = protowire.AppendString(packed, TypeURL)
	packed = protowire.AppendTag(packed, 2, protowire.BytesType)
	packed = protowire.AppendBytes(packed, body)
	return Item{Name: name, Version: fmt.Sprintf("%x", hash.Sum(nil)), Any: packed, text: text}
}

// Message returns the resource unencoded, for the servers that encode by themselves. Two strings are about the cheapest
// message to encode: real ones are nested, and would cost such a server more.
func (item Item) Message() *cluster.Cluster {
	return &cluster.Cluster{Name: item.Name, AltStatName: item.text}
}
