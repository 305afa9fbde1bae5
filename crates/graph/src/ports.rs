//! Ports: the inputs and outputs of a program, declared once.
//!
//! A structure of ports is generic over the type at each port: a [`TensorType`](cutout_tensor::TensorType) where a
//! graph is declared, a [`Value`](crate::Value) where it is built, a [`DeviceValue`](crate::DeviceValue) where its
//! program runs. Model code and callers use the same fields, so no name has to match in two places; names in printed
//! graphs follow from the fields: `frames.2.keys.0`.

/// A structure of ports. The type that implements it stands for all of its [`Ports::Of`]; [`ports!`](crate::ports) makes
/// both.
pub trait Ports {
    /// The structure with a `V` at each port.
    type Of<V>;

    /// Maps the value at each port, in the order of declaration. `change` also gets the port's name, prefixed with
    /// `prefix`.
    fn try_map<V, W, E>(
        ports: Self::Of<V>,
        prefix: &str,
        change: &mut dyn FnMut(&str, V) -> Result<W, E>,
    ) -> Result<Self::Of<W>, E>;
}

/// The values at all ports, in the order of declaration.
pub fn flatten<P: Ports, V>(ports: P::Of<V>) -> Vec<V> {
    let mut flat = Vec::new();
    map::<P, V, ()>(ports, &mut |_, value| flat.push(value));
    flat
}

/// Maps the value at each port.
pub fn map<P: Ports, V, W>(ports: P::Of<V>, change: &mut dyn FnMut(&str, V) -> W) -> P::Of<W> {
    let mut infallible = |name: &str, value| Ok::<W, std::convert::Infallible>(change(name, value));
    match P::try_map(ports, "", &mut infallible) {
        Ok(mapped) => mapped,
        Err(never) => match never {},
    }
}

/// Name of a port: its field or number behind the names of the structures it is in.
#[doc(hidden)]
pub fn port_name(prefix: &str, name: impl std::fmt::Display) -> String {
    if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") }
}

/// Declares a structure of ports. A field is one of
///
/// ```text
/// name,                          one value
/// name: optional,                a value that some programs have
/// name: list,                    any number of values
/// name: group Structure,         another structure of ports
/// name: optional Structure,
/// name: list Structure,
/// ```
///
/// ```
/// use cutout_graph::{flatten, ports};
///
/// ports! {
///     /// Keys and values.
///     pub struct Operands {
///         /// One for each layer.
///         keys: list,
///         /// Where values are kept.
///         values: optional,
///     }
/// }
/// let operands = Operands { keys: vec![1, 2], values: Some(3) };
/// assert_eq!(flatten::<Operands<()>, _>(operands), [1, 2, 3]);
/// ```
#[macro_export]
macro_rules! ports {
    ($(#[$about:meta])* $visible:vis struct $name:ident {
        $($(#[$field_about:meta])* $field:ident $(: $kind:ident $($of:ident)?)?),* $(,)?
    }) => {
        $(#[$about])*
        $visible struct $name<V> {
            $($(#[$field_about])* $visible $field: $crate::ports!(@type V $($kind $($of)?)?)),*
        }

        impl<V: Clone> Clone for $name<V> {
            fn clone(&self) -> Self {
                $name { $($field: self.$field.clone()),* }
            }
        }

        impl $crate::Ports for $name<()> {
            type Of<V> = $name<V>;

            fn try_map<V, W, E>(
                ports: $name<V>,
                prefix: &str,
                change: &mut dyn FnMut(&str, V) -> Result<W, E>,
            ) -> Result<$name<W>, E> {
                Ok($name {
                    $($field: {
                        let name = $crate::port_name(prefix, stringify!($field));
                        $crate::ports!(@map ports.$field, name, change, $($kind $($of)?)?)
                    }),*
                })
            }
        }
    };

    (@type $v:ident) => { $v };
    (@type $v:ident optional) => { Option<$v> };
    (@type $v:ident list) => { Vec<$v> };
    (@type $v:ident group $of:ident) => { $of<$v> };
    (@type $v:ident optional $of:ident) => { Option<$of<$v>> };
    (@type $v:ident list $of:ident) => { Vec<$of<$v>> };

    (@map $value:expr, $name:ident, $change:ident,) => { $change(&$name, $value)? };
    (@map $value:expr, $name:ident, $change:ident, optional) => {
        $value.map(|value| $change(&$name, value)).transpose()?
    };
    (@map $value:expr, $name:ident, $change:ident, list) => {
        $value
            .into_iter()
            .enumerate()
            .map(|(index, value)| $change(&$crate::port_name(&$name, index), value))
            .collect::<Result<_, E>>()?
    };
    (@map $value:expr, $name:ident, $change:ident, group $of:ident) => {
        <$of<()> as $crate::Ports>::try_map($value, &$name, $change)?
    };
    (@map $value:expr, $name:ident, $change:ident, optional $of:ident) => {
        $value
            .map(|value| <$of<()> as $crate::Ports>::try_map(value, &$name, $change))
            .transpose()?
    };
    (@map $value:expr, $name:ident, $change:ident, list $of:ident) => {
        $value
            .into_iter()
            .enumerate()
            .map(|(index, value)| {
                let name = $crate::port_name(&$name, index);
                <$of<()> as $crate::Ports>::try_map(value, &name, $change)
            })
            .collect::<Result<_, E>>()?
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::ports! {
        /// A part.
        struct Part {
            /// Values of every layer.
            layers: list,
        }
    }

    crate::ports! {
        /// A whole.
        struct Whole {
            first,
            parts: list Part,
            missing: optional,
            last: optional Part,
            inner: group Part,
        }
    }

    #[test]
    fn ports_are_named_and_ordered_by_their_fields() {
        let part = |layers: &[i32]| Part { layers: layers.to_vec() };
        let whole = Whole {
            first: 1,
            parts: vec![part(&[2]), part(&[3, 4])],
            missing: None,
            last: Some(part(&[5])),
            inner: part(&[6]),
        };
        let mut names = Vec::new();
        let doubled = map::<Whole<()>, _, _>(whole, &mut |name, value| {
            names.push(name.to_owned());
            2 * value
        });
        let expected = ["first", "parts.0.layers.0", "parts.1.layers.0", "parts.1.layers.1"];
        assert_eq!(names[..4], expected);
        assert_eq!(names[4..], ["last.layers.0", "inner.layers.0"]);
        assert_eq!(flatten::<Whole<()>, _>(doubled), [2, 4, 6, 8, 10, 12]);
    }
}
