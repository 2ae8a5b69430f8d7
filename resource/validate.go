package resource

import (
	"fmt"
	"strings"
	"sync"

	"github.com/hashicorp/go-multierror"
	"google.golang.org/protobuf/proto"
	mesh "istio.io/api/mesh/v1alpha1"
	"istio.io/istio/pkg/config"
	meshdefaults "istio.io/istio/pkg/config/mesh"
	"istio.io/istio/pkg/config/validation"
	"istio.io/istio/pkg/config/validation/agent"
	"istio.io/istio/pkg/config/validation/envoyfilter"
	istiolog "istio.io/istio/pkg/log"
)

// validators are the checks that istiod runs on what it receives, and drops if they fail, while it acknowledges it.
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
	TrafficExtension:      validateTrafficExtension,
	VirtualService:        validation.ValidateVirtualService,
	WasmPlugin:            validation.ValidateWasmPlugin,
	WorkloadEntry:         validation.ValidateWorkloadEntry,
	WorkloadGroup:         validation.ValidateWorkloadGroup,
}

// muteIstio keeps Istio's validation from logging what it finds, in its own form and to standard output.
var muteIstio = sync.OnceFunc(func() {
	if scope := istiolog.FindScope("validation"); scope != nil {
		scope.SetOutputLevel(istiolog.NoneLevel)
	}
})

// Validate checks r as istiod will, with Istio's own validation (1.27), and its name, labels and annotations as
// Kubernetes would. The error, if any, is of type Errors. It is safe for concurrent use.
func Validate(r *Resource) (warnings Errors, err error) {
	muteIstio()
	schema, ok := schemaByKind[r.key.Kind]
	if !ok {
		return nil, Errors{errorOf(r, "unknown kind")}
	}
	spec := schema.NewSpec()
	if err := proto.Unmarshal(r.body, spec); err != nil {
		return nil, Errors{errorOf(r, "decode spec: %w", err)}
	}
	var errs Errors
	for _, err := range checkKey(r.key) {
		errs = append(errs, errorOf(r, "%w", err))
	}
	for _, err := range checkMeta(r.Meta()) {
		errs = append(errs, errorOf(r, "%w", err))
	}
	warning, err := validateSpec(r, spec)
	for _, err := range flatten(err) {
		errs = append(errs, errorOf(r, "%w", err))
	}
	for _, w := range flatten(warning) {
		// Said of every EnvoyFilter there is.
		if r.key.Kind == EnvoyFilter && strings.HasPrefix(w.Error(), "EnvoyFilter exposes internal implementation details") {
			continue
		}
		warnings = append(warnings, errorOf(r, "%w", w))
	}
	return append(warnings, warnShortHosts(r, spec)...), errs.Err()
}

// validateSpec runs Istio's validator. A panic of it, as bad input has caused in the past, is an error of the object.
func validateSpec(r *Resource, spec proto.Message) (warning, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("Istio's validation panics: %v", p) //nolint:staticcheck // a proper name
		}
	}()
	return validators[r.key.Kind](config.Config{
		Meta: config.Meta{
			Name: r.key.Name, Namespace: r.key.Namespace,
			Labels: r.labels, Annotations: r.annotations,
			CreationTimestamp: r.created,
		},
		Spec: spec,
	})
}

// checkKey checks that the key can be a name on the wire, where istiod takes exactly "namespace/name".
func checkKey(k Key) []error {
	var errs []error
	if err := checkName(k.Name); err != nil {
		errs = append(errs, fmt.Errorf("metadata.name: %w", err))
	}
	if k.Kind == MeshConfig {
		if k.Namespace != "" {
			errs = append(errs, fmt.Errorf("metadata.namespace: %q given, but %s is cluster-scoped", k.Namespace, k.Kind))
		}
	} else if err := checkNamespace(k.Namespace); err != nil {
		errs = append(errs, fmt.Errorf("metadata.namespace: %w", err))
	}
	return errs
}

// flatten lists the errors that err is made of, each on one line.
func flatten(err error) []error {
	switch e := err.(type) { //nolint:errorlint // Istio returns these as they are
	case nil:
		return nil
	case *multierror.Error:
		var all []error
		for _, sub := range e.Errors {
			all = append(all, flatten(sub)...)
		}
		return all
	}
	if strings.Contains(err.Error(), "\n") {
		err = fmt.Errorf("%s", strings.Join(strings.Fields(err.Error()), " "))
	}
	return []error{err}
}

// validateMeshConfig validates what is left after laying the spec over the defaults, as istiod does with its mesh file.
func validateMeshConfig(cfg config.Config) (validation.Warning, error) {
	spec, ok := cfg.Spec.(*mesh.MeshConfig)
	if !ok {
		return nil, fmt.Errorf("spec is a %T", cfg.Spec)
	}
	merged := meshdefaults.DefaultMeshConfig()
	// Lists and the rest of the message replace the default, so that they are not appended to it.
	src, dst := spec.ProtoReflect(), merged.ProtoReflect()
	fields := src.Descriptor().Fields()
	for i := range fields.Len() {
		if fd := fields.Get(i); fd.IsList() && src.Has(fd) {
			dst.Clear(fd)
		}
	}
	proto.Merge(merged, spec)
	warning, err := agent.ValidateMeshConfig(merged)
	return warning, err
}
