package config_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"

	"tributary/config"
)

// comments are the comments above the fields of structs, by "package.Type.Field".
var comments = sync.OnceValue(func() map[string]string {
	commentByName := make(map[string]string)
	for _, dir := range []string{".", "../sources/transform"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			panic(err)
		}
		for _, name := range files {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				panic(err)
			}
			ast.Inspect(file, func(n ast.Node) bool {
				spec, ok := n.(*ast.TypeSpec)
				if !ok {
					return true
				}
				if s, ok := spec.Type.(*ast.StructType); ok {
					for _, f := range s.Fields.List {
						for _, id := range f.Names {
							commentByName[file.Name.Name+"."+spec.Name.Name+"."+id.Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
						}
					}
				}
				return true
			})
		}
	}
	return commentByName
})

// fields returns the fields of a struct and of its embedded structs. The tag jsonschema of each is the comment above
// it.
func fields(typ reflect.Type) []reflect.StructField {
	var structFields []reflect.StructField
	for structField := range typ.Fields() {
		if structField.Anonymous && keyOf(structField) == "" {
			structFields = append(structFields, fields(bare(structField.Type))...)
			continue
		}
		comment := comments()[typ.String()+"."+structField.Name]
		if typ == reflect.TypeFor[config.Source]() && structField.Name == "Address" {
			for _, scheme := range config.Schemes() {
				comment += " " + scheme.Form
			}
		}
		structField.Tag += reflect.StructTag(` jsonschema:` + strconv.Quote(comment))
		structFields = append(structFields, structField)
	}
	return structFields
}

// annotate gives the properties of a struct's schema, and of the structs in it, their descriptions and defaults.
func annotate(schema *jsonschema.Schema, typ reflect.Type) *jsonschema.Schema {
	for _, structField := range fields(typ) {
		p := schema.Properties[keyOf(structField)]
		if p == nil {
			continue
		}
		p.Description = structField.Tag.Get("jsonschema")
		p.Default = defaultOf(structField)
		inner := bare(structField.Type)
		if inner.Kind() == reflect.Slice {
			p, inner = p.Items, bare(inner.Elem())
		}
		if inner.Kind() == reflect.Struct && p.Properties != nil {
			annotate(p, inner)
		}
	}
	return schema
}
