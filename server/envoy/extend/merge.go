package extend

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"tributary/server/envoy/model"
)

// merge merges src into dst: fields of src replace those of dst, lists are put together, and messages are merged. Unlike with proto.Merge,
// a duration replaces another one as a whole.
func merge(dst, src proto.Message) {
	mergeInto(dst.ProtoReflect(), proto.Clone(src).ProtoReflect())
}

func mergeInto(dst, src protoreflect.Message) {
	src.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsList():
			list := dst.Mutable(f).List()
			for i := range v.List().Len() {
				list.Append(v.List().Get(i))
			}
		case f.IsMap():
			v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
				dst.Mutable(f).Map().Set(k, v)
				return true
			})
		case f.Message() != nil && f.Message().FullName() != "google.protobuf.Duration":
			mergeInto(dst.Mutable(f).Message(), v.Message())
		default:
			dst.Set(f, v)
		}
		return true
	})
}

// mergedConfig returns a typed_config with another one merged into it. Both have to be of one type.
func mergedConfig(config, with *anypb.Any) (*anypb.Any, error) {
	if config.GetTypeUrl() != with.GetTypeUrl() {
		return nil, fmt.Errorf("a typed_config of type %s cannot be merged into one of type %s", with.GetTypeUrl(), config.GetTypeUrl())
	}
	to, err := config.UnmarshalNew()
	if err != nil {
		return nil, err
	}
	from, err := with.UnmarshalNew()
	if err != nil {
		return nil, err
	}
	merge(to, from)
	return model.ToAny(to), nil
}
