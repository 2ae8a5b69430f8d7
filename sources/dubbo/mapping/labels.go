package mapping

import (
	"cmp"
	"strings"

	"tributary/internal/names"
	"tributary/sources/dubbo/provider"
)

// The optional parameters that Aeraki introduced.
const (
	aerakiVersion        = "aeraki_meta_app_version"
	aerakiLocality       = "aeraki_meta_locality"
	aerakiNamespace      = "aeraki_meta_app_namespace"
	aerakiServiceAccount = "aeraki_meta_app_service_account"
)

// labelsOf makes labels of parameters of a provider. It leaves out values that cannot be labels.
func (m *Mapper) labelsOf(instance provider.Provider) map[string]string {
	labels := map[string]string{}
	add := func(key, value string) {
		if _, taken := labels[key]; !taken && names.IsLabelText(value) {
			labels[key] = value
		}
	}
	add("application", instance.Application)
	add("version", cmp.Or(instance.Params[aerakiVersion], instance.Version))
	add("group", instance.Group)
	add("tag", instance.Params["dubbo.tag"])
	for _, key := range m.o.LabelParams {
		add(key, instance.Params[key])
	}
	if len(labels) == 0 {
		return nil
	}
	return labels
}

// localityOf returns a locality in Istio's form, region/zone/subzone, or an empty text.
func localityOf(instance provider.Provider) string {
	parts := strings.Split(instance.Params[aerakiLocality], "/")
	if parts[0] == "" {
		parts = []string{instance.Params["region"], instance.Params["zone"]}
	}
	var valid []string
	for _, part := range parts[:min(3, len(parts))] {
		// A missing or invalid part ends the locality, as in Istio.
		if !names.IsLabelText(part) {
			break
		}
		valid = append(valid, part)
	}
	return strings.Join(valid, "/")
}

// serviceAccountOf returns the service account that a provider names; it switches mTLS on. The namespace must be that
// of the ServiceEntry, as Istio assumes.
func (m *Mapper) serviceAccountOf(p provider.Provider) string {
	account := p.Params[aerakiServiceAccount]
	if n := p.Params[aerakiNamespace]; n != "" && n != m.o.Namespace || !names.IsDNSLabel(account) {
		return ""
	}
	return account
}
