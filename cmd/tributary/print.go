package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/util/jsonpath"

	"tributary/cmd/internal/check"
	"tributary/cmd/internal/output"
	"tributary/resource"
)

type printer struct {
	format    string // table, wide, name, yaml or json
	noHeaders bool
	list      bool // there may be more than one
	version   func(resource.Key) string
	path      *jsonpath.JSONPath // of the format jsonpath
}

// sortByPath sorts objects by the field that an expression selects, numbers by their value; objects without it first.
func sortByPath(objects []*resource.Resource, expression string) error {
	path, err := parsePath(expression)
	if err != nil {
		return err
	}
	values := make(map[*resource.Resource]string, len(objects))
	for _, object := range objects {
		var text bytes.Buffer
		document, err := decodedJSON(object)
		if err == nil {
			err = path.Execute(&text, document)
		}
		if err != nil {
			return err
		}
		values[object] = text.String()
	}
	slices.SortStableFunc(objects, func(a, b *resource.Resource) int {
		numberA, errA := strconv.ParseFloat(values[a], 64)
		numberB, errB := strconv.ParseFloat(values[b], 64)
		if errA == nil && errB == nil {
			return cmp.Compare(numberA, numberB)
		}
		return strings.Compare(values[a], values[b])
	})
	return nil
}

func decodedJSON(r *resource.Resource) (document any, err error) {
	text, err := resource.MarshalJSON(r)
	if err == nil {
		err = json.Unmarshal(text, &document)
	}
	return document, err
}

// selectFields prints the fields that the path selects, of one object or of a list.
func (p *printer) selectFields(writer io.Writer, kinds []selection) error {
	items := []any{}
	for _, f := range kinds {
		for _, r := range f.objects {
			document, err := decodedJSON(r)
			if err != nil {
				return err
			}
			items = append(items, document)
		}
	}
	if !p.list && len(items) == 1 {
		return p.path.Execute(writer, items[0])
	}
	return p.path.Execute(writer, map[string]any{"apiVersion": "v1", "kind": "List", "items": items})
}

// print prints objects, one kind after the other.
func (p *printer) print(writer io.Writer, flags *clientFlags, selections []selection) error {
	if p.path != nil {
		return p.selectFields(writer, selections)
	}
	if p.format != "table" && p.format != "wide" {
		return p.documents(writer, selections)
	}
	var buffer bytes.Buffer
	options := output.TableOptions{
		Namespaces: flags.everywhere && p.list || inSeveralNamespaces(selections), Kinds: len(selections) > 1,
		Wide: p.format == "wide", NoHeaders: p.noHeaders,
	}
	for _, selected := range selections {
		if len(selected.objects) == 0 {
			continue
		}
		if buffer.Len() > 0 && !p.noHeaders {
			buffer.WriteByte('\n')
		}
		if err := output.Table(&buffer, selected.schema.Kind, selected.objects, options, time.Now()); err != nil {
			return err
		}
	}
	text := buffer.String()
	if p.format != "wide" {
		text = output.ScreenOf(writer).Cut(text)
	}
	_, err := io.WriteString(writer, text)
	return err
}

func inSeveralNamespaces(selections []selection) bool {
	namespaces := make(map[string]bool)
	for _, f := range selections {
		for _, r := range f.objects {
			if r.Key().Namespace != "" {
				namespaces[r.Key().Namespace] = true
			}
		}
	}
	return len(namespaces) > 1
}

// documents prints objects as documents, or as the names that get takes; as JSON in a list that kubectl apply takes.
func (p *printer) documents(writer io.Writer, selections []selection) error {
	var documents []document
	for _, selected := range selections {
		for _, object := range selected.objects {
			name := strings.TrimPrefix(object.Key().Namespace+"/"+object.Key().Name, "/")
			documents = append(documents, document{
				strings.ToLower(string(selected.schema.Kind)) + "/" + name,
				func(format string) ([]byte, error) {
					text, err := marshalled(object, format)
					if p.version != nil {
						text = check.WithVersion(text, p.version(object.Key()))
					}
					return text, err
				},
			})
		}
	}
	return printDocuments(writer, p.format, documents, !p.list && len(documents) == 1, func(items []json.RawMessage) any {
		return struct {
			APIVersion string            `json:"apiVersion"`
			Kind       string            `json:"kind"`
			Items      []json.RawMessage `json:"items"`
		}{"v1", "List", items}
	})
}

type document struct {
	name    string
	marshal func(format string) ([]byte, error)
}

// printDocuments prints objects as json, yaml or name. In JSON, a single object stands alone, and list wraps several.
func printDocuments(writer io.Writer, format string, documents []document, single bool,
	list func([]json.RawMessage) any,
) error {
	items, separator := []json.RawMessage{}, ""
	for _, printed := range documents {
		if format == "name" {
			if _, err := fmt.Fprintln(writer, printed.name); err != nil {
				return err
			}
			continue
		}
		text, err := printed.marshal(format)
		if err == nil && format == "yaml" {
			_, err = fmt.Fprintf(writer, "%s%s", separator, text)
		}
		if err != nil {
			return err
		}
		if separator = "---\n"; format == "json" {
			items = append(items, text)
		}
	}
	switch {
	case format != "json":
		return nil
	case single:
		return printJSON(writer, items[0])
	}
	return printJSON(writer, list(items))
}

func marshalled(object *resource.Resource, format string) ([]byte, error) {
	if format == "json" {
		return resource.MarshalJSON(object)
	}
	return resource.MarshalYAML(object)
}

// parsePath parses an expression as kubectl does.
func parsePath(expression string) (*jsonpath.JSONPath, error) {
	if !strings.Contains(expression, "{") {
		expression = "{." + strings.TrimPrefix(expression, ".") + "}"
	}
	path := jsonpath.New("output").AllowMissingKeys(true)
	return path, path.Parse(expression)
}

// printJSON writes a value for people and programs alike.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}
