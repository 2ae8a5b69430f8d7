package sources

import "tributary/resource"

// Decode makes a text of configuration objects, in YAML or JSON, the content of a group. place names it in origins.
func Decode(group, place string, text []byte, o resource.Options) Content {
	c := Content{Group: group}
	for _, doc := range resource.Decode(place, text, o) {
		for _, w := range doc.Warnings {
			c.Warnings = append(c.Warnings, w.Error())
		}
		if len(doc.Errors) > 0 {
			c.Rejects = append(c.Rejects, Reject{Key: doc.Key, Foreign: doc.Foreign, Origin: doc.Errors[0].Origin, Err: doc.Errors})
		} else if doc.Foreign {
			c.Foreign++
		} else if doc.Resource != nil {
			c.Resources = append(c.Resources, doc.Resource)
		}
	}
	return c
}
