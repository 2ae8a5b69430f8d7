package resource

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/go-multierror"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	mesh "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pkg/config"
	meshdefaults "istio.io/istio/pkg/config/mesh"
	"istio.io/istio/pkg/config/protocol"
	"istio.io/istio/pkg/config/validation"
	"istio.io/istio/pkg/config/validation/agent"
	"istio.io/istio/pkg/config/validation/envoyfilter"
	istiolog "istio.io/istio/pkg/log"
)

// validators are istiod's checks of received objects. istiod drops objects that fail, and acknowledges them.
var validators = map[Kind]validation.ValidateFunc{
	AuthorizationPolicy:   validation.ValidateAuthorizationPolicy,
	DestinationRule:       validation.ValidateDestinationRule,
	EnvoyFilter:           envoyfilter.ValidateEnvoyFilter,
	Gateway:               validation.ValidateGateway,
	MeshConfig:            validateMeshConfig,
	PeerAuthentication:    validation.ValidatePeerAuthentication,
	ProxyConfig:           validation.ValidateProxyConfig,
	RequestAuthentication: validation.ValidateRequestAuthentication,
	ServiceEntry:          validation.ValidateServiceEntry,
	Sidecar:               validation.ValidateSidecar,
	Telemetry:             validation.ValidateTelemetry,
	TrafficExtension:      validation.ValidateTrafficExtension,
	VirtualService:        validation.ValidateVirtualService,
	WasmPlugin:            validation.ValidateWasmPlugin,
	WorkloadEntry:         validation.ValidateWorkloadEntry,
	WorkloadGroup:         validation.ValidateWorkloadGroup,
}

// muteIstio keeps Istio's packages from logging their findings to standard output.
var muteIstio = sync.OnceFunc(func() {
	for _, name := range []string{"validation", "authorization"} {
		if scope := istiolog.FindScope(name); scope != nil {
			scope.SetOutputLevel(istiolog.NoneLevel)
		}
	}
})

// ValidationVersion is the version of Istio's validation that Validate runs.
const ValidationVersion = "1.31"

// verdict is the result of validating a resource. It is immutable.
type verdict struct{ warnings, errs Errors }

// faultless is the verdict on most resources.
var faultless = &verdict{}

// Validate checks a resource with Istio's own validation, of ValidationVersion, as istiod will. It checks name, labels
// and annotations as Kubernetes would. The error, if any, is of type Errors. It is safe for concurrent use.
func Validate(r *Resource) (warnings Errors, err error) {
	verdict := r.verdict
	if verdict == nil {
		verdict = examine(r)
	}
	return verdict.warnings, verdict.errs.Err()
}

// Lenient turns errors by rules of Istio's validation, or of Kubernetes for metadata, into warnings: for newer rules.
func Lenient(warnings Errors, err error) (Errors, error) {
	return lenient(warnings, err, func(e *Error) bool { return e.Rule || e.Metadata })
}

// LenientMetadata turns errors by rules of Kubernetes for metadata into warnings: for objects that come over MCP, since
// istiod takes them.
func LenientMetadata(warnings Errors, err error) (Errors, error) {
	return lenient(warnings, err, func(e *Error) bool { return e.Metadata })
}

func lenient(warnings Errors, err error, warns func(*Error) bool) (Errors, error) {
	var errs Errors
	warnings = slices.Clip(warnings)
	for _, finding := range ErrorsIn(err) {
		if warns(finding) {
			warnings = append(warnings, finding)
		} else {
			errs = append(errs, finding)
		}
	}
	return warnings, errs.Err()
}

// examine is validate for a resource with an encoded spec only.
func examine(resource *Resource) *verdict {
	schema, ok := schemaByKind[resource.key.Kind]
	if !ok {
		return &verdict{errs: Errors{errorOf(resource, "unknown kind")}}
	}
	spec := schema.NewSpec()
	if err := proto.Unmarshal(resource.body, spec); err != nil {
		return &verdict{errs: Errors{errorOf(resource, "decode spec: %w", err)}}
	}
	return validate(resource, spec)
}

// validate validates a resource with its decoded spec. It may change the spec.
func validate(resource *Resource, spec proto.Message) *verdict {
	muteIstio()
	var result verdict
	broken, foreign := checkKey(resource.key)
	for _, err := range broken {
		result.errs = append(result.errs, errorOf(resource, "%w", err))
	}
	for _, err := range slices.Concat(foreign, checkMeta(resource.Meta())) {
		metadata := errorOf(resource, "%w", err)
		metadata.Metadata = true
		result.errs = append(result.errs, metadata)
	}
	result.warnings = warnShortHosts(resource, spec) // first, as validators may change the spec
	warning, err := validateSpec(resource, spec)
	result.errs = append(append(result.errs, rules(resource, err)...), checkZones(resource, spec)...)
	result.warnings = append(rules(resource, warning), result.warnings...)
	if len(result.errs)+len(result.warnings) == 0 {
		return faultless
	}
	return &result
}

// everyEnvoyFilter is a warning that every EnvoyFilter gets.
const everyEnvoyFilter = "EnvoyFilter exposes internal implementation details"

// rules lists the errors of Istio's validation for a resource, each once: it repeats an error about several fields.
func rules(resource *Resource, err error) (errs Errors) {
	reported := make(map[string]bool)
	for _, err := range flatten(err) {
		text := err.Error()
		if reported[text] || strings.HasPrefix(text, everyEnvoyFilter) {
			continue
		}
		reported[text] = true
		e := errorOf(resource, "%w", err)
		e.Rule = true
		errs = append(errs, e)
	}
	return errs
}

// maxHosts bounds the hosts of a VirtualService: Istio's validator compares each with each.
const maxHosts = 10_000

// validateSpec runs Istio's validator. Bad input has made it panic in the past: a panic is an error of the object.
func validateSpec(resource *Resource, spec proto.Message) (warning, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("Istio's validation panics: %v", p) //nolint:staticcheck // a proper name
		}
	}()
	if entry, ok := spec.(*networking.ServiceEntry); ok { // istiod writes this for a port without protocol
		for _, port := range entry.GetPorts() {
			if port.GetProtocol() == string(protocol.Unsupported) {
				port.Protocol = ""
			}
		}
	}
	if v, ok := spec.(*networking.VirtualService); ok && len(v.GetHosts()) > maxHosts {
		return nil, fmt.Errorf("hosts: there are %d, and at most %d are validated", len(v.GetHosts()), maxHosts)
	}
	return validators[resource.key.Kind](config.Config{
		Meta: config.Meta{
			Name: resource.key.Name, Namespace: resource.key.Namespace,
			Labels: resource.labels, Annotations: resource.annotations,
			CreationTimestamp: resource.Created(),
		},
		Spec: spec,
	})
}

// checkKey returns the faults of a key: broken ones, with which it cannot be "namespace/name" on the wire, and foreign
// ones, which only Kubernetes refuses.
func checkKey(key Key) (broken, foreign []error) {
	check := func(field, name string, rules func(string) error) {
		if err := checkKeyPart(name); err != nil {
			broken = append(broken, fmt.Errorf("metadata.%s: %w", field, err))
		} else if err := rules(name); err != nil {
			foreign = append(foreign, fmt.Errorf("metadata.%s: %w", field, err))
		}
	}
	check("name", key.Name, checkName)
	switch {
	case key.Kind != MeshConfig:
		check("namespace", key.Namespace, CheckNamespace)
	case key.Namespace != "":
		broken = append(broken, fmt.Errorf("metadata.namespace: %q given, but %s is cluster-scoped", key.Namespace, key.Kind))
	}
	return broken, foreign
}

// flatten lists the errors that err is made of, each on one line.
func flatten(err error) []error {
	switch typed := err.(type) { //nolint:errorlint // Istio returns these as they are
	case nil:
		return nil
	case *multierror.Error:
		var list []error
		for _, sub := range typed.Errors {
			list = append(list, flatten(sub)...)
		}
		return list
	}
	if strings.Contains(err.Error(), "\n") {
		err = fmt.Errorf("%s", strings.Join(strings.Fields(err.Error()), " "))
	}
	return []error{err}
}

// validateMeshConfig validates the defaults with the spec laid over them, as istiod does with its mesh file.
func validateMeshConfig(cfg config.Config) (validation.Warning, error) {
	spec, ok := cfg.Spec.(*mesh.MeshConfig)
	if !ok {
		return nil, fmt.Errorf("spec is a %T", cfg.Spec)
	}
	merged := meshdefaults.DefaultMeshConfig()
	// Lists and the rest of the message replace the default, so that they are not appended to it.
	src, message := spec.ProtoReflect(), merged.ProtoReflect()
	fields := src.Descriptor().Fields()
	for i := range fields.Len() {
		if fd := fields.Get(i); fd.IsList() && src.Has(fd) {
			message.Clear(fd)
		}
	}
	proto.Merge(merged, spec)
	warning, err := agent.ValidateMeshConfig(merged)
	return warning, err
}

// IsAddress reports whether text is an IP address without a zone. A zone, as in fe80::1%eth0, names an interface of one
// machine, and Envoy rejects a whole resource for one.
func IsAddress(text string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && a.Zone() == ""
}

// AddressIn returns the IP address in a text, which may have brackets and a port; false if there is none.
func AddressIn(text string) (netip.Addr, bool) {
	if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	}
	a, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return a.Unmap().WithZone(""), err == nil
}

// addressFields are the fields with IP addresses that Envoy reads.
var addressFields = map[protoreflect.FullName]bool{
	"istio.networking.v1alpha3.ServiceEntry.addresses":                 true,
	"istio.networking.v1alpha3.WorkloadEntry.address":                  true,
	"istio.networking.v1alpha3.Server.bind":                            true, // of a Gateway
	"istio.networking.v1alpha3.IstioEgressListener.bind":               true,
	"istio.networking.v1alpha3.IstioIngressListener.bind":              true,
	"istio.networking.v1alpha3.TLSMatchAttributes.destination_subnets": true,
	"istio.networking.v1alpha3.L4MatchAttributes.destination_subnets":  true,
}

// checkZones returns an error for each address in spec that has a zone. Istio's validation accepts these.
func checkZones(resource *Resource, spec proto.Message) (errs Errors) {
	if !bytes.ContainsRune(resource.body, '%') {
		return nil
	}
	visitTexts(spec.ProtoReflect(), addressFields, "spec.", func(field, text string) {
		if address, err := netip.ParseAddr(text); err == nil && address.Zone() != "" {
			errs = append(errs, errorOf(resource, "%s: %q has a zone, which Envoy rejects: write the address without %q", field,
				text,
				"%"+address.Zone()))
		}
	})
	return errs
}

// visitTexts calls visit with the path and the value of some fields of a message and of the messages in it.
func visitTexts(
	message protoreflect.Message, fields map[protoreflect.FullName]bool, parent string, visit func(path, text string),
) {
	for i := range message.Descriptor().Fields().Len() {
		field := message.Descriptor().Fields().Get(i)
		visitValue := func(path string, value protoreflect.Value) {
			switch {
			case fields[field.FullName()]:
				visit(path, value.String())
			case field.Message() != nil:
				visitTexts(value.Message(), fields, path+".", visit)
			}
		}
		path, value := parent+field.JSONName(), message.Get(field)
		switch {
		case field.IsMap() || !message.Has(field):
		case field.IsList():
			for i := range value.List().Len() {
				visitValue(fmt.Sprintf("%s[%d]", path, i), value.List().Get(i))
			}
		default:
			visitValue(path, value)
		}
	}
}

// Rules identifies the decoding and validation of this program: two processes with the same Rules have the same
// results, so that one may rely on the results of the other. It identifies the executable, since the rules are code of
// this module and of others. It is empty if the executable is unknown; then no result may be reused.
var Rules = sync.OnceValue(func() string {
	path, err := os.Executable()
	if runtime.GOOS == "linux" {
		path = "/proc/self/exe" // also if another one has taken its place
	}
	if err != nil {
		return ""
	}
	fi, err := os.Stat(path)
	if err != nil {
		return ""
	}
	h := sha256.New()
	h.Write(fmt.Appendln(nil, fi.Size(), fi.ModTime().UnixNano()))
	if info, ok := debug.ReadBuildInfo(); ok {
		h.Write([]byte(info.String()))
	}
	if f, err := elf.Open(path); err == nil {
		defer f.Close() //nolint:errcheck // only read
		if note := f.Section(".note.go.buildid"); note != nil {
			id, _ := note.Data() // a hash of all that was linked
			h.Write(id)
		}
	}
	return string(h.Sum(nil)[:16])
})
