package sources

import (
	"cmp"
	"fmt"

	"tributary/resource"
)

// Texts are the settings for decoding the texts of a source, in the words of the configuration. Empty fields have the
// default.
type Texts struct {
	DefaultNamespace string // the namespace of objects without one; "default"
	UnknownFields    string // "error" (the default) refuses an object with an unknown field, "warn" ignores the field
	ForeignKinds     string // objects of other APIs: "ignore" (the default), "warn" or "error"
	DomainSuffix     string // completes host names without a dot, as istiod does for its own objects; none by default
}

// Options returns the options of Decode. An error begins with the key at fault.
func (t Texts) Options() (options resource.Options, err error) {
	namespace := cmp.Or(t.DefaultNamespace, "default")
	options = resource.Options{DefaultNamespace: namespace, DomainSuffix: t.DomainSuffix, Validate: true}
	if err := resource.CheckNamespace(options.DefaultNamespace); err != nil {
		return options, fmt.Errorf("defaultNamespace: %w", err)
	}
	switch t.UnknownFields {
	case "", "error":
	case "warn":
		options.UnknownFields = resource.SeverityWarning
	default:
		return options, fmt.Errorf(`unknownFields: want "error" or "warn", got %q`, t.UnknownFields)
	}
	switch t.ForeignKinds {
	case "", "ignore":
	case "warn":
		options.ForeignKinds = resource.ForeignWarn
	case "error":
		options.ForeignKinds = resource.ForeignError
	default:
		return options, fmt.Errorf(`foreignKinds: want "ignore", "warn" or "error", got %q`, t.ForeignKinds)
	}
	if err := resource.CheckDomain(t.DomainSuffix); err != nil {
		return options, fmt.Errorf("domainSuffix: %w", err)
	}
	return options, nil
}

// Decode returns the content of a group for a text of configuration objects in YAML or JSON. place names the text in
// origins.
func Decode(group, place string, text []byte, o resource.Options) Content {
	return content(group, place, resource.Decode(place, text, o))
}

// DecodeIncremental is Decode for a text that was decoded before, if earlier is not nil.
func DecodeIncremental(
	group, place string, text []byte, options resource.Options, earlier *resource.DecodeCache,
) (Content, *resource.DecodeCache) {
	if earlier == nil {
		return Decode(group, place, text, options), nil
	}
	docs, decoded := resource.DecodeIncremental(place, text, options, earlier)
	return content(group, place, docs), decoded
}

// content converts documents to the content of a group.
func content(group, place string, docs []resource.Document) Content {
	content := Content{Group: group, Renamable: true}
	for _, document := range docs {
		for _, w := range document.Warnings {
			content.Warnings = append(content.Warnings, w.Error())
		}
		if len(document.Errors) > 0 {
			content.Rejects = append(content.Rejects, Reject{
				Key: document.Key, Foreign: document.Foreign, MayRestrict: document.MayRestrict, Origin: document.Errors[0].Origin,
				Err: document.Errors,
			})
		} else if document.Other != nil {
			origin := resource.Origin{Place: fmt.Sprintf("%s:%d", place, document.Line)}
			content.Others = append(content.Others, Other{Other: *document.Other, Key: document.Key, Origin: origin})
		} else if document.Foreign {
			content.Foreign++
		} else if document.Resource != nil {
			content.Resources = append(content.Resources, document.Resource)
		}
	}
	return content
}
